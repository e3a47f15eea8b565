package redact

import outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"

// Message replaces values in the text of a trial's message. Names that Outbid assigns, such as those of sweeps, nodes
// and objects, are not changed, whatever the secrets are.
func (m *Mask) Message(message *outbidv1.UplinkMessage) {
	if m == nil {
		return
	}
	switch k := message.GetKind().(type) {
	case *outbidv1.UplinkMessage_Ended:
		k.Ended.Detail = m.Cut(k.Ended.GetDetail())
	case *outbidv1.UplinkMessage_Note:
		k.Note.Text = m.Cut(k.Note.GetText())
	case *outbidv1.UplinkMessage_Report:
		m.Report(k.Report)
	}
}

// Report replaces values in the names of metrics, and in the names and values of attributes.
func (m *Mask) Report(report *outbidv1.Report) {
	if m == nil {
		return
	}
	renameKeys(m, report.Metrics)
	renameKeys(m, report.Attributes)
	for name, value := range report.GetAttributes() {
		report.Attributes[name] = m.Cut(value)
	}
}

// renameKeys replaces values in the keys of a map.
func renameKeys[V any](m *Mask, entries map[string]V) {
	var renamed []string
	for name := range entries {
		if m.Text(name) != name {
			renamed = append(renamed, name)
		}
	}
	for _, name := range renamed {
		value := entries[name]
		delete(entries, name)
		entries[m.Text(name)] = value
	}
}
