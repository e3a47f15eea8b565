// Package audit records which caller changed or administered what, and every denial, in a separate JetStream stream. A
// record is one line of JSON with the fields of an audit.k8s.io Event. Each record has the hash of the previous one, so
// that Verifier finds records that were changed, removed or inserted.
package audit

import (
	"time"

	"github.com/outbid-dev/outbid/orchestrator/limits"
	"github.com/outbid-dev/outbid/orchestrator/sanitize"
)

// Event describes one call, or one change that the server noticed. The fields are those of an audit.k8s.io Event.
type Event struct {
	Kind                     string            `json:"kind"`
	APIVersion               string            `json:"apiVersion"`
	Level                    string            `json:"level"`
	AuditID                  string            `json:"auditID"`
	Stage                    string            `json:"stage"`
	RequestURI               string            `json:"requestURI,omitempty"`
	Verb                     string            `json:"verb"`
	User                     User              `json:"user"`
	SourceIPs                []string          `json:"sourceIPs,omitempty"`
	UserAgent                string            `json:"userAgent,omitempty"`
	ObjectRef                *ObjectRef        `json:"objectRef,omitempty"`
	ResponseStatus           Status            `json:"responseStatus"`
	RequestReceivedTimestamp time.Time         `json:"requestReceivedTimestamp"`
	StageTimestamp           time.Time         `json:"stageTimestamp"`
	Annotations              map[string]string `json:"annotations,omitempty"`
}

// User is the caller. Its groups name its role and its tenant.
type User struct {
	Username string   `json:"username"`
	Groups   []string `json:"groups,omitempty"`
}

// ObjectRef names the object of a call. Namespace is the tenant.
type ObjectRef struct {
	Resource  string `json:"resource"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
}

// Status is the result of a call: Code is the HTTP status, Reason the gRPC code, such as PERMISSION_DENIED.
type Status struct {
	Code    int    `json:"code"`
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
}

// The usernames of records that no authenticated caller caused.
const (
	// Anonymous is a caller whose token is missing or unknown.
	Anonymous = "system:anonymous"
	// Server is the server itself.
	Server = "system:server"
)

// The annotations.
const (
	// AnnotationDenied says why a call was denied; it is absent from allowed calls. The values are the Denied constants.
	AnnotationDenied = "outbid.dev/denied"
	// AnnotationMethod is the gRPC method.
	AnnotationMethod = "outbid.dev/method"
	// AnnotationLost is the number of records that could not be stored before this record.
	AnnotationLost = "outbid.dev/lost"
	// AnnotationSuppressed is the number of similar denials without a record.
	AnnotationSuppressed = "outbid.dev/suppressed"
	// AnnotationRole is the role of the token that the record is about.
	AnnotationRole = "outbid.dev/role"
)

// The reasons of denials.
const (
	// DeniedUnauthenticated means that the caller's token is missing or unknown.
	DeniedUnauthenticated = "unauthenticated"
	// DeniedRole means that the caller's role does not allow the call.
	DeniedRole = "role"
	// DeniedTenant means that the object belongs to another tenant.
	DeniedTenant = "tenant"
	// DeniedLimit means that a limit was reached.
	DeniedLimit = "limit"
	// DeniedOrigin means that the request came from a web page of another origin.
	DeniedOrigin = "origin"
)

// maxValues bounds lists and maps of an event.
const maxValues = 16

// Denied returns why the call was denied, or "" if it was not.
func (e *Event) Denied() string { return e.Annotations[AnnotationDenied] }

// Tenant returns the tenant of the object, or "" if it has none.
func (e *Event) Tenant() string {
	if e.ObjectRef == nil {
		return ""
	}
	return e.ObjectRef.Namespace
}

// bounded returns the event with its constant fields and with valid text of bounded length.
func (e Event) bounded() Event {
	e.Kind, e.APIVersion, e.Level = "Event", "audit.k8s.io/v1", "Metadata"
	for _, field := range []*string{
		&e.AuditID, &e.Stage, &e.RequestURI, &e.Verb, &e.User.Username, &e.UserAgent, &e.ResponseStatus.Reason,
	} {
		*field = sanitize.Line(*field, limits.Name)
	}
	e.ResponseStatus.Message = sanitize.Line(e.ResponseStatus.Message, limits.Detail)
	e.User.Groups, e.SourceIPs = lines(e.User.Groups), lines(e.SourceIPs)
	if o := e.ObjectRef; o != nil {
		e.ObjectRef = &ObjectRef{
			Resource: sanitize.Line(o.Resource, limits.Name), Namespace: sanitize.Line(o.Namespace, limits.Name), Name: sanitize.Line(o.Name, limits.Name),
		}
	}
	notes := make(map[string]string, len(e.Annotations))
	for key, value := range e.Annotations {
		if len(notes) < maxValues {
			notes[sanitize.Line(key, limits.Name)] = sanitize.Line(value, limits.Detail)
		}
	}
	e.Annotations = notes
	e.RequestReceivedTimestamp = e.RequestReceivedTimestamp.UTC().Truncate(time.Microsecond)
	e.StageTimestamp = e.StageTimestamp.UTC().Truncate(time.Microsecond)
	return e
}

func lines(list []string) []string {
	list = list[:min(len(list), maxValues)]
	clean := make([]string, 0, len(list))
	for _, s := range list {
		clean = append(clean, sanitize.Line(s, limits.Name))
	}
	return clean
}
