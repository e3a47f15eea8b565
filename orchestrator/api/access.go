package api

import (
	"sync"

	outbidv1 "github.com/outbid-dev/outbid/proto/outbid/v1"
)

// access is a permission that a method requires and a role grants.
type access int

const (
	// admin is the default, so a method that is not listed requires it.
	admin access = iota
	// operate is for methods that control nodes and workers.
	operate
	// manageTenant is for methods that change a tenant. They check that it is the caller's tenant.
	manageTenant
	// manageTokens is for methods that change or list API tokens. They check the tenant and the role.
	manageTokens
	write
	read
	// readContent is for methods that return what trials print or save.
	readContent
	readAudit
	// readEvents is for methods that return every tenant's events.
	readEvents
	// anyRole is for methods that every authenticated caller may call.
	anyRole
	// open does not require an API token. The method checks another token.
	open
)

// String returns the permission's name in the documentation.
func (a access) String() string {
	return map[access]string{
		admin: "administer", operate: "operate", manageTenant: "manage the tenant", manageTokens: "manage tokens", write: "write", read: "read", readContent: "read content",
		readAudit: "read the audit", readEvents: "read the ledger", anyRole: "any role", open: "none",
	}[a]
}

// rule is the permission that a method requires, and how the audit describes it.
type rule struct {
	need access
	// verb and resource are those of the audit.
	verb, resource string
	// unrecorded is set for allowed calls that change something and have no record, because there are many of them and the
	// ledger has them.
	unrecorded bool
}

// knownRules returns rules, which it makes once, because every call needs one.
var knownRules = sync.OnceValue(rules) //nolint:gochecknoglobals // a constant

// ruleOf returns the rule of a method, given by its full name.
func ruleOf(method string) rule {
	if r, ok := knownRules()[method]; ok {
		return r
	}
	return rule{need: admin, verb: "call", resource: "unknown"}
}

// isRecorded reports whether the audit has a record of each allowed call of a method: of those that change or administer
// something. Denials are always recorded.
func (r rule) isRecorded() bool {
	switch {
	case r.unrecorded:
		return false
	case r.reads():
		return r.need == readEvents
	}
	return true
}

func (r rule) reads() bool { return r.verb == "get" || r.verb == "list" || r.verb == "watch" }

// isThrottled reports whether calls of a method count against the changes that a tenant may make in a minute. Calls of
// external clients about trials do not, because report_rate limits them.
func (r rule) isThrottled() bool { return !r.reads() && !r.unrecorded && r.need != open }

// rules returns the rule of every method by its full name. Each RPC needs an entry here.
func rules() map[string]rule {
	return map[string]rule{
		outbidv1.OutbidService_GetServerInfo_FullMethodName: {need: read, verb: "get", resource: "server"},
		outbidv1.OutbidService_ListNodes_FullMethodName:     {need: read, verb: "list", resource: "nodes"},
		outbidv1.OutbidService_GetRound_FullMethodName:      {need: read, verb: "get", resource: "rounds"},
		outbidv1.OutbidService_ListRounds_FullMethodName:    {need: read, verb: "list", resource: "rounds"},
		outbidv1.OutbidService_GetPrices_FullMethodName:     {need: read, verb: "get", resource: "prices"},
		outbidv1.OutbidService_GetUsage_FullMethodName:      {need: read, verb: "get", resource: "usage"},
		outbidv1.OutbidService_GetTenant_FullMethodName:     {need: read, verb: "get", resource: "tenants"},
		outbidv1.OutbidService_ListTenants_FullMethodName:   {need: read, verb: "list", resource: "tenants"},

		outbidv1.OutbidService_ExplainSweep_FullMethodName:   {need: read, verb: "get", resource: "explanations"},
		outbidv1.OutbidService_ForecastCurves_FullMethodName: {need: read, verb: "get", resource: "forecasts"},
		outbidv1.OutbidService_SimulateLedger_FullMethodName: {need: read, verb: "get", resource: "simulations"},
		outbidv1.OutbidService_ListSweeps_FullMethodName:     {need: read, verb: "list", resource: "sweeps"},
		outbidv1.OutbidService_GetSweep_FullMethodName:       {need: read, verb: "get", resource: "sweeps"},
		outbidv1.OutbidService_WatchSweep_FullMethodName:     {need: read, verb: "watch", resource: "sweeps"},
		outbidv1.OutbidService_PreviewSweep_FullMethodName:   {need: read, verb: "get", resource: "previews"},
		outbidv1.OutbidService_ReadColumns_FullMethodName:    {need: read, verb: "list", resource: "trials"},
		outbidv1.OutbidService_ListTrials_FullMethodName:     {need: read, verb: "list", resource: "trials"},
		outbidv1.OutbidService_GetTrial_FullMethodName:       {need: read, verb: "get", resource: "trials"},
		outbidv1.OutbidService_ListReports_FullMethodName:    {need: read, verb: "list", resource: "reports"},
		outbidv1.OutbidService_StreamLogs_FullMethodName:     {need: readContent, verb: "get", resource: "logs"},
		outbidv1.OutbidService_GetCheckpoint_FullMethodName:  {need: readContent, verb: "get", resource: "checkpoints"},
		outbidv1.OutbidService_GetSoup_FullMethodName:        {need: readContent, verb: "get", resource: "soups"},

		outbidv1.OutbidService_SubmitSweep_FullMethodName:   {need: write, verb: "create", resource: "sweeps"},
		outbidv1.OutbidService_ControlSweep_FullMethodName:  {need: write, verb: "update", resource: "sweeps"},
		outbidv1.OutbidService_ControlTrial_FullMethodName:  {need: write, verb: "update", resource: "trials"},
		outbidv1.OutbidService_ExtendSweep_FullMethodName:   {need: write, verb: "extend", resource: "sweeps"},
		outbidv1.OutbidService_AnnotateSweep_FullMethodName: {need: write, verb: "update", resource: "sweeps"},
		outbidv1.OutbidService_DeleteSweep_FullMethodName:   {need: write, verb: "delete", resource: "sweeps"},
		outbidv1.OutbidService_AskTrial_FullMethodName:      {need: write, verb: "create", resource: "trials", unrecorded: true},
		outbidv1.OutbidService_TellTrial_FullMethodName:     {need: write, verb: "update", resource: "trials", unrecorded: true},
		outbidv1.OutbidService_PutBlob_FullMethodName:       {need: write, verb: "create", resource: "functions"},
		outbidv1.OutbidService_PutSoup_FullMethodName:       {need: write, verb: "create", resource: "soups"},
		outbidv1.OutbidService_SetSecret_FullMethodName:     {need: write, verb: "update", resource: "secrets"},
		outbidv1.OutbidService_ListSecrets_FullMethodName:   {need: write, verb: "list", resource: "secrets"},
		outbidv1.OutbidService_DeleteSecret_FullMethodName:  {need: write, verb: "delete", resource: "secrets"},

		outbidv1.OutbidService_ReadLedger_FullMethodName:     {need: readEvents, verb: "get", resource: "ledger"},
		outbidv1.OutbidService_ListAudit_FullMethodName:      {need: readAudit, verb: "list", resource: "audit", unrecorded: true},
		outbidv1.OutbidService_NewWorkerToken_FullMethodName: {need: operate, verb: "create", resource: "jointokens"},
		outbidv1.OutbidService_RemoveWorker_FullMethodName:   {need: operate, verb: "delete", resource: "nodes"},
		outbidv1.OutbidService_ControlNode_FullMethodName:    {need: operate, verb: "update", resource: "nodes"},
		outbidv1.OutbidService_SetTenant_FullMethodName:      {need: manageTenant, verb: "update", resource: "tenants"},
		outbidv1.OutbidService_RunRetention_FullMethodName:   {need: manageTenant, verb: "run", resource: "retention"},
		outbidv1.OutbidService_RemoveTenant_FullMethodName:   {need: admin, verb: "delete", resource: "tenants"},

		outbidv1.OutbidService_CreateToken_FullMethodName: {need: manageTokens, verb: "create", resource: "tokens"},
		outbidv1.OutbidService_ListTokens_FullMethodName:  {need: manageTokens, verb: "list", resource: "tokens"},
		outbidv1.OutbidService_RotateToken_FullMethodName: {need: manageTokens, verb: "rotate", resource: "tokens"},
		outbidv1.OutbidService_RevokeToken_FullMethodName: {need: manageTokens, verb: "delete", resource: "tokens"},

		outbidv1.OutbidService_CheckAccess_FullMethodName: {need: anyRole, verb: "get", resource: "access"},

		outbidv1.OutbidService_JoinWorker_FullMethodName: {need: open, verb: "join", resource: "nodes"},
	}
}
