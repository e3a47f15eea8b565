package nodes

import (
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/sanitize"
	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// boundMessage shortens the text of a worker's message to the stored length. Workers do so themselves, but those of
// other versions or authors may not.
func boundMessage(m *outbidv1.UplinkMessage) {
	line := func(text *string) { *text = sanitize.Line(*text, limits.Detail) }
	switch k := m.GetKind().(type) {
	case *outbidv1.UplinkMessage_Ended:
		line(&k.Ended.Detail)
	case *outbidv1.UplinkMessage_Note:
		k.Note.Text, k.Note.Level = sanitize.Text(k.Note.GetText(), limits.Note), sanitize.Line(k.Note.GetLevel(), limits.LabelName)
	case *outbidv1.UplinkMessage_Consolidated:
		line(&k.Consolidated.Failure)
		boundCheckpoint(k.Consolidated.GetCheckpoint())
	case *outbidv1.UplinkMessage_Saved:
		boundCheckpoint(k.Saved)
	case *outbidv1.UplinkMessage_Shard:
		if sums := k.Shard.GetShard(); sums != nil {
			sums.Sha256, sums.Crc64Nvme = sanitize.Line(sums.GetSha256(), limits.Name), sanitize.Line(sums.GetCrc64Nvme(), limits.Name)
		}
	}
}

func boundCheckpoint(ck *outbidv1.Checkpoint) {
	if ck == nil {
		return
	}
	for _, text := range []*string{&ck.Sha256, &ck.Crc64Nvme, &ck.ManifestSum} {
		*text = sanitize.Line(*text, limits.Name)
	}
	if o := ck.GetOuter(); o != nil {
		o.Sha256, o.Crc64Nvme = sanitize.Line(o.GetSha256(), limits.Name), sanitize.Line(o.GetCrc64Nvme(), limits.Name)
	}
}

// maxNodeDevices is the maximum number of devices of a node.
const maxNodeDevices = 4096

// maxNodeWarnings is the maximum number of warnings of a node.
const maxNodeWarnings = 8

// boundInfo returns a copy of a node's info with text that is bounded and safe to show.
func boundInfo(said *outbidv1.NodeInfo) *outbidv1.NodeInfo {
	info := proto.CloneOf(said)
	info.Version, info.Hostname = sanitize.Line(info.GetVersion(), limits.Name), sanitize.Line(info.GetHostname(), limits.Name)
	info.Killed = sanitize.Line(info.GetKilled(), limits.Name)
	info.Devices = info.GetDevices()[:min(len(info.GetDevices()), maxNodeDevices)]
	info.Links = info.GetLinks()[:min(len(info.GetLinks()), maxNodeDevices*8)]
	info.Warnings = info.GetWarnings()[:min(len(info.GetWarnings()), maxNodeWarnings)]
	for i, text := range info.GetWarnings() {
		info.Warnings[i] = sanitize.Line(text, limits.Detail)
	}
	for _, d := range info.GetDevices() {
		for _, text := range []*string{&d.Type, &d.Name, &d.Uuid, &d.Pci} {
			*text = sanitize.Line(*text, limits.Name)
		}
	}
	for _, l := range info.GetLinks() {
		l.Kind = sanitize.Line(l.GetKind(), limits.LabelName)
	}
	labels := info.GetLabels()
	info.Labels = make(map[string]string, min(len(labels), limits.LabelCount))
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		if len(info.Labels) == limits.LabelCount {
			break
		}
		info.Labels[sanitize.Line(name, limits.LabelName)] = sanitize.Line(labels[name], limits.Label)
	}
	if len(info.Labels) == 0 {
		info.Labels = nil
	}
	return info
}
