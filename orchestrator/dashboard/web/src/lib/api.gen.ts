// Generated from proto/outbid/v1 by `make dashboard`. Do not edit.

/** A number as JSON of protocol buffers has it. */
export type Float = number | "NaN" | "Infinity" | "-Infinity";

export type AdmissionKind =
  | "ADMISSION_KIND_UNSPECIFIED"
  | "ADMISSION_KIND_MEASURING"
  | "ADMISSION_KIND_ADMITTED"
  | "ADMISSION_KIND_WAITING"
  | "ADMISSION_KIND_REJECTED"
  | "ADMISSION_KIND_BROKEN"
  | "ADMISSION_KIND_OVER";

export type MergeVerdict =
  | "MERGE_VERDICT_UNSPECIFIED"
  | "MERGE_VERDICT_PENDING"
  | "MERGE_VERDICT_KEPT"
  | "MERGE_VERDICT_DROPPED";

export type NodeCommand =
  | "NODE_COMMAND_UNSPECIFIED"
  | "NODE_COMMAND_CORDON"
  | "NODE_COMMAND_DRAIN"
  | "NODE_COMMAND_UNCORDON"
  | "NODE_COMMAND_EVICT";

export type NodeState =
  | "NODE_STATE_UNSPECIFIED"
  | "NODE_STATE_UP"
  | "NODE_STATE_DRAINING"
  | "NODE_STATE_LOST"
  | "NODE_STATE_LEFT";

export type SweepCommand =
  | "SWEEP_COMMAND_UNSPECIFIED"
  | "SWEEP_COMMAND_PAUSE"
  | "SWEEP_COMMAND_RESUME"
  | "SWEEP_COMMAND_STOP";

export type SweepState =
  | "SWEEP_STATE_UNSPECIFIED"
  | "SWEEP_STATE_RUNNING"
  | "SWEEP_STATE_PAUSED"
  | "SWEEP_STATE_STOPPING"
  | "SWEEP_STATE_DONE"
  | "SWEEP_STATE_STOPPED"
  | "SWEEP_STATE_FAILED";

export type TrialColumnKind =
  | "TRIAL_COLUMN_KIND_UNSPECIFIED"
  | "TRIAL_COLUMN_KIND_TRIAL"
  | "TRIAL_COLUMN_KIND_METRIC"
  | "TRIAL_COLUMN_KIND_PARAMETER"
  | "TRIAL_COLUMN_KIND_ATTRIBUTE";

export type TrialCommand =
  | "TRIAL_COMMAND_UNSPECIFIED"
  | "TRIAL_COMMAND_STOP"
  | "TRIAL_COMMAND_RETRY";

export type TrialState =
  | "TRIAL_STATE_UNSPECIFIED"
  | "TRIAL_STATE_QUEUED"
  | "TRIAL_STATE_RUNNING"
  | "TRIAL_STATE_PAUSED"
  | "TRIAL_STATE_COMPLETED"
  | "TRIAL_STATE_STOPPED"
  | "TRIAL_STATE_FAILED"
  | "TRIAL_STATE_CANCELLED";

export interface APIToken {
  tenant: string;
  name: string;
  role: string;
  scopes: string[];
  created?: string | null;
  created_by: string;
  expires?: string | null;
  last_used?: string | null;
}

export interface Admission {
  sweep: string;
  kind: AdmissionKind;
  text: string;
  least: number;
  most: number;
  worker_devices: number;
  begins?: string | null;
  ends?: string | null;
  promised?: string | null;
  worth: Float;
  cost: Float;
  again?: string | null;
  schedule: PromisedWorkers[];
}

export interface Agent {
  plugin: string;
  settings?: Record<string, unknown> | null;
}

export interface AnnotateSweepRequest {
  sweep: string;
  description?: string;
  add_tags: string[];
  remove_tags: string[];
}

export interface AnnotateSweepResponse {
  sweep?: Sweep | null;
}

export interface Annotation {
  description: string;
  tags: string[];
}

export interface Asha {
  max_steps: string;
  eta: number;
  min_steps: string;
  form: string;
  brackets: number;
  sampler: string;
}

export interface AskTrialRequest {
  sweep: string;
  client: string;
}

export interface AskTrialResponse {
  trial?: Trial | null;
  exhausted: boolean;
  lease_id: string;
}

export interface Auction {
  lots: Lot[];
  bidders: Bidder[];
  fairness_knob: Float;
  log_welfare: Float;
  log_welfare_bound: Float;
  exact: boolean;
  apps: number;
  lease_seconds: Float;
  rule: string;
}

export interface AuctionFairness {
  round: string;
  time?: string | null;
  rho: Float;
  alone_seconds: Float;
}

export interface AuditRecord {
  seq: string;
  event?: Record<string, unknown> | null;
  line: string;
}

export interface Auto {
  max_steps: string;
  sampler: string;
}

export interface Batch {
  seq: string;
  time?: string | null;
  prev_hash: string;
  hash: string;
  events: string;
  parts: number;
}

export interface BayesianSearch {
  max_steps: string;
}

export interface Bid {
  lots: Lot[];
  rho: Float;
  gangs: Gangs[];
}

export interface Bidder {
  sweep: string;
  rho: Float;
  asked: boolean;
  bids: Bid[];
  fair: number;
  keeps: Float;
  won: Lot[];
  leftover: Lot[];
  rho_after: Float;
  refused: string;
  ideal_seconds: Float;
  forecast_seconds: Float;
  renewed: Lot[];
  why: string;
}

export interface Caller {
  name: string;
  tenant: string;
  role: string;
  local: boolean;
}

export interface Check {
  name: string;
  ok: boolean;
  detail: string;
  fix: string;
}

export interface CheckAccessRequest {
  verb: string;
  resource: string;
  name: string;
  tenant: string;
  as: string;
  as_tenant: string;
}

export interface CheckAccessResponse {
  allowed: boolean;
  permissions: Permission[];
  name: string;
  tenant: string;
  role: string;
  scopes: string[];
}

export interface Checkpoint {
  key: string;
  step: string;
  bytes: string;
  sha256: string;
  time?: string | null;
  metric?: Float;
  unreadable: boolean;
  lease_id: string;
  outer?: OuterState | null;
  crc64nvme: string;
  shards: number;
  shard_bytes: string;
  manifest_sum: string;
}

export interface Checkpoints {
  best: number;
  last: boolean;
  all: boolean;
  every: string;
}

export interface Choice {
  values: unknown[];
}

export interface Condition {
  param: string;
  in: unknown[];
}

export interface ControlNodeRequest {
  node: string;
  command: NodeCommand;
  reason: string;
}

export interface ControlNodeResponse {
  node?: Node | null;
}

export interface ControlSweepRequest {
  sweep: string;
  command: SweepCommand;
}

export interface ControlSweepResponse {
  sweep?: Sweep | null;
}

export interface ControlTrialRequest {
  sweep: string;
  trial: number;
  command: TrialCommand;
  reason: string;
}

export interface ControlTrialResponse {
  trial?: Trial | null;
}

export interface CreateTokenRequest {
  tenant: string;
  name: string;
  role: string;
  scopes: string[];
  life?: string | null;
}

export interface CreateTokenResponse {
  token: string;
  info?: APIToken | null;
}

export interface CurveForecast {
  trial: number;
  points: ForecastPoint[];
}

export interface Decision {
  kind: string;
  sweep: string;
  trial: number;
  lease_id: string;
  places: LeasePlace[];
  reason: string;
  term_end?: string | null;
}

export interface DeleteSecretRequest {
  tenant: string;
  name: string;
}

export interface DeleteSecretResponse {
}

export interface DeleteSweepRequest {
  sweep: string;
  force: boolean;
}

export interface DeleteSweepResponse {
  deleted?: string | null;
  actor: string;
}

export interface Device {
  index: number;
  type: string;
  name: string;
  memory_bytes: string;
  uuid: string;
  pci: string;
  numa: number;
  speed: Float;
  pcie_generation: number;
}

export interface DeviceCount {
  min: number;
  max: number;
}

export interface DeviceLink {
  a: number;
  b: number;
  kind: string;
  lanes: number;
}

export interface DeviceUse {
  device: number;
  fork?: ForkRef | null;
  term_end?: string | null;
}

export interface Expired {
  tenant: string;
  sweep: string;
  ended?: string | null;
  retain: string;
  bytes: string;
  reason: string;
  error: string;
}

export interface ExplainSweepRequest {
  sweep: string;
  trial?: number;
  simulate: boolean;
  policies: string[];
}

export interface ExplainSweepResponse {
  cause: string;
  why: string;
  lost: string;
  otherwise: string;
  outcomes: SimulatedOutcome[];
}

export interface ExtendSweepRequest {
  sweep: string;
  trials?: number;
  max_steps?: string;
  space: Record<string, Parameter>;
  limits?: Limits | null;
  preview: boolean;
  weight?: Float;
}

export interface ExtendSweepResponse {
  sweep?: Sweep | null;
  trained_again: TrainedAgain[];
}

export interface External {
  timeout: string;
}

export interface Fairness {
  rho: Float;
  alone_seconds: Float;
  forecast_seconds: Float;
  mean_sweeps: Float;
  auction?: AuctionFairness | null;
}

export interface FloatRange {
  low: Float;
  high: Float;
  log: boolean;
  quantum: Float;
}

export interface ForecastCurvesRequest {
  sweep: string;
  trials: number[];
}

export interface ForecastCurvesResponse {
  forecasts: CurveForecast[];
  reason: string;
  checked: number;
}

export interface ForecastPoint {
  step: string;
  low: Float;
  median: Float;
  high: Float;
}

export interface ForkRef {
  sweep: string;
  trial: number;
  lease_id: string;
}

export interface FreezeThaw {
  max_steps: string;
  min_steps: string;
  poor: Float;
  sampler: string;
}

export interface Function {
  blob: string;
  python: string;
  name: string;
  env: Record<string, string>;
  workdir: string;
  fresh_process: boolean;
  secrets: Record<string, string>;
}

export interface Gangs {
  count: number;
  machines: number;
  devices: number;
  type: string;
  node: string;
  rack: string;
}

export interface GetCheckpointRequest {
  sweep: string;
  trial: number;
  step?: string;
  best: boolean;
  shard?: number;
}

export interface GetCheckpointResponse {
  checkpoint?: Checkpoint | null;
  data: string;
}

export interface GetPricesRequest {
}

export interface GetPricesResponse {
  policy: string;
  prices?: Prices | null;
}

export interface GetRoundRequest {
  round: string;
}

export interface GetRoundResponse {
  round?: Round | null;
}

export interface GetServerInfoRequest {
  thorough: boolean;
}

export interface GetServerInfoResponse {
  version: string;
  nats: string;
  store: string;
  policy: string;
  ledger_seq: string;
  started?: string | null;
  leader: boolean;
  checks: Check[];
  policy_options: Record<string, string>;
  simulated_policies: string[];
  caller?: Caller | null;
}

export interface GetSoupRequest {
  sweep: string;
  number: number;
}

export interface GetSoupResponse {
  soup?: Soup | null;
  data: string;
}

export interface GetSweepRequest {
  sweep: string;
}

export interface GetSweepResponse {
  sweep?: Sweep | null;
}

export interface GetTenantRequest {
  tenant: string;
}

export interface GetTenantResponse {
  tenant?: TenantState | null;
}

export interface GetTrialRequest {
  sweep: string;
  trial: number;
}

export interface GetTrialResponse {
  trial?: Trial | null;
}

export interface GetUsageRequest {
  since?: string | null;
  until?: string | null;
  by: string[];
  prices: Record<string, Float>;
}

export interface GetUsageResponse {
  since?: string | null;
  until?: string | null;
  by: string[];
  rows: UsageRow[];
  total?: UsageRow | null;
  currency: string;
}

export interface GridSearch {
  max_steps: string;
  points: number;
}

export interface Group {
  space: Record<string, Parameter>;
}

export interface Hyperband {
  max_steps: string;
  eta: number;
  min_steps: string;
  iterations: number;
  sampler: string;
}

export interface IntRange {
  low: string;
  high: string;
  log: boolean;
  quantum: string;
}

export interface JoinWorkerRequest {
  token: string;
  node: string;
  public_key: string;
}

export interface JoinWorkerResponse {
  node: string;
  credentials: string;
  orders_key: string;
  nats: string;
  expires?: string | null;
}

export interface LeasePlace {
  node: string;
  devices: number[];
  ended: boolean;
}

export interface Limits {
  trials: number;
  concurrency: number;
  steps: string;
  wall_time: string;
  target?: Float;
  device_hours: Float;
  cost: Float;
}

export interface ListAuditRequest {
  since?: string | null;
  actor: string;
  tenant: string;
  denied: boolean;
  after_seq: string;
  page_size: number;
  lines: boolean;
}

export interface ListAuditResponse {
  records: AuditRecord[];
  last_seq: string;
  more: boolean;
}

export interface ListNodesRequest {
}

export interface ListNodesResponse {
  nodes: Node[];
}

export interface ListReportsRequest {
  sweep: string;
  trial?: number;
}

export interface ListReportsResponse {
  reports: TrialReport[];
}

export interface ListRoundsRequest {
  limit: number;
  before: string;
  sweep: string;
}

export interface ListRoundsResponse {
  rounds: Round[];
}

export interface ListSecretsRequest {
  tenant: string;
}

export interface ListSecretsResponse {
  secrets: Secret[];
}

export interface ListSweepsRequest {
  tenant: string;
  page_size: number;
  page_token: string;
}

export interface ListSweepsResponse {
  sweeps: Sweep[];
  next_page_token: string;
}

export interface ListTenantsRequest {
}

export interface ListTenantsResponse {
  tenants: TenantState[];
}

export interface ListTokensRequest {
  tenant: string;
}

export interface ListTokensResponse {
  tokens: APIToken[];
}

export interface ListTrialsRequest {
  sweep: string;
  page_size: number;
  page_token: string;
  order: string;
}

export interface ListTrialsResponse {
  trials: Trial[];
  next_page_token: string;
}

export interface Lot {
  node: string;
  type: string;
  devices: number;
}

export interface MedianStopping {
  max_steps: string;
  grace_steps: string;
  min_trials: number;
  sampler: string;
}

export interface NewWorkerTokenRequest {
  node: string;
  life?: string | null;
}

export interface NewWorkerTokenResponse {
  token: string;
  expires?: string | null;
}

export interface Node {
  info?: NodeInfo | null;
  state: NodeState;
  reason: string;
  last_seen?: string | null;
  uses: DeviceUse[];
  faults: NodeFault[];
}

export interface NodeFault {
  sweep: string;
  reason: string;
  since?: string | null;
  until?: string | null;
  times: number;
  cordoned: boolean;
  trials: string[];
  unfit: boolean;
  ambiguous: boolean;
  after_start: boolean;
  manual: boolean;
  actor: string;
  drained: boolean;
}

export interface NodeInfo {
  name: string;
  boot: string;
  devices: Device[];
  cpus: Float;
  memory_bytes: string;
  version: string;
  hostname: string;
  labels: Record<string, string>;
  links: DeviceLink[];
  pid: number;
  warnings: string[];
  trusted: boolean;
  reports_shards: boolean;
  seal_key: string;
  killed: string;
}

export interface Normal {
  mean: Float;
  sd: Float;
  quantum: Float;
}

export interface Objective {
  metric: string;
  mode: string;
}

export interface OuterState {
  bytes: string;
  sha256: string;
  crc64nvme: string;
}

export interface Outlook {
  trials: number;
  steps: string;
  rungs: Rung[];
}

export interface Parameter {
  float?: FloatRange | null;
  int?: IntRange | null;
  choice?: Choice | null;
  constant?: unknown | null;
  group?: Group | null;
  normal?: Normal | null;
  when?: Condition | null;
}

export interface Patient {
  max_steps: string;
  patience: string;
  min_delta: Float;
  sampler: string;
}

export interface Pbt {
  max_steps: string;
  population: number;
  interval: string;
  quantile: Float;
  resample?: Float;
  factors: Float[];
}

export interface Percentile {
  max_steps: string;
  percentile: Float;
  grace_steps: string;
  min_trials: number;
  sampler: string;
}

export interface PerformanceCurve {
  max_steps: string;
  interval: string;
  grace_steps: string;
  poor: Float;
  keep?: Float;
  eta: number;
  sampler: string;
}

export interface Permission {
  call: string;
  verb: string;
  resource: string;
  permission: string;
  allowed: boolean;
  reason: string;
}

export interface PluginTuner {
  command: string[];
  settings?: Record<string, unknown> | null;
  max_steps: string;
  rule?: Tuner | null;
}

export interface PreviewSweepRequest {
  spec?: SweepSpec | null;
  step_seconds: Float;
}

export interface PreviewSweepResponse {
  outlook?: Outlook | null;
  device_hours: Float;
  examples: Record<string, unknown>[];
  warnings: string[];
  least_cost?: Float;
  most_cost?: Float;
  currency: string;
}

export interface PriceRange {
  resource: string;
  low: Float;
  high: Float;
}

export interface Prices {
  time?: string | null;
  slot_seconds: Float;
  slots: number;
  ranges: PriceRange[];
  prices: SlotPrice[];
  sweeps: number;
}

export interface Program {
  command: string[];
  shell: string;
  env: Record<string, string>;
  workdir: string;
  grace: string;
  secrets: Record<string, string>;
}

export interface PromisedWorkers {
  begins?: string | null;
  ends?: string | null;
  type: string;
  workers: number;
}

export interface PutBlobRequest {
  data: string;
}

export interface PutBlobResponse {
  sha256: string;
}

export interface PutSoupRequest {
  sweep: string;
  soup?: Soup | null;
  data: string;
}

export interface PutSoupResponse {
  soup?: Soup | null;
}

export interface RandomSearch {
  max_steps: string;
}

export interface ReadColumnsRequest {
  sweep: string;
  since: string;
  follow: boolean;
}

export interface ReadColumnsResponse {
  version: string;
  whole: boolean;
  sweep?: Sweep | null;
  numbers: string;
  columns: TrialColumn[];
}

export interface ReadLedgerRequest {
  from_seq: string;
}

export interface ReadLedgerResponse {
  batch?: Batch | null;
}

export interface RememberedSweep {
  sweep: string;
  trials: number;
  points: Float[];
  costs: Float[];
}

export interface RemoveTenantRequest {
  tenant: string;
}

export interface RemoveTenantResponse {
}

export interface RemoveWorkerRequest {
  node: string;
}

export interface RemoveWorkerResponse {
}

export interface Report {
  seq: string;
  step: string;
  metrics: Record<string, Float>;
  time?: string | null;
  train_seconds: Float;
  lease_id: string;
  fork_step: string;
  attributes: Record<string, string>;
}

export interface Resources {
  devices?: DeviceCount | null;
  types: string[];
  exclude_types: string[];
  cpus: Float;
  memory: string;
  spread: boolean;
  mixed: boolean;
  processes: string;
  forks: string;
  forks_merge: string;
}

export interface RevokeTokenRequest {
  tenant: string;
  name: string;
}

export interface RevokeTokenResponse {
}

export interface RotateTokenRequest {
  tenant: string;
  name: string;
  life?: string | null;
  overlap?: string | null;
}

export interface RotateTokenResponse {
  token: string;
  info?: APIToken | null;
}

export interface Round {
  round: string;
  time?: string | null;
  seq: string;
  policy: string;
  reason: string;
  auction?: Auction | null;
  decisions: Decision[];
}

export interface RunRetentionRequest {
  tenant: string;
  dry_run: boolean;
}

export interface RunRetentionResponse {
  expired: Expired[];
  kept: Expired[];
}

export interface Rung {
  bracket: number;
  until_step: string;
  trials: number;
  steps: string;
}

export interface Secret {
  tenant: string;
  name: string;
  set_at?: string | null;
  set_by: string;
}

export interface SetSecretRequest {
  tenant: string;
  name: string;
  value: string;
}

export interface SetSecretResponse {
  secret?: Secret | null;
}

export interface SetTenantRequest {
  tenant?: Tenant | null;
  add: boolean;
}

export interface SetTenantResponse {
  tenant?: TenantState | null;
}

export interface SimulateLedgerRequest {
  policies: string[];
  since?: string | null;
  until?: string | null;
  sweep: string;
  weight: Float;
}

export interface SimulateLedgerResponse {
  progress?: SimulationProgress | null;
  run?: SimulatedRun | null;
}

export interface SimulatedOutcome {
  policy: string;
  weight: Float;
  seconds: Float;
}

export interface SimulatedRun {
  policy: string;
  weight: Float;
  sweeps: SimulatedSweep[];
  assumptions: string[];
}

export interface SimulatedSweep {
  sweep: string;
  submitted?: string | null;
  seconds?: Float;
  rho?: Float;
  device_seconds: Float;
  unknown_speed: boolean;
}

export interface SimulationProgress {
  waiting: boolean;
  policy: string;
  ended: number;
  sweeps: number;
}

export interface SlotPrice {
  type: string;
  begins?: string | null;
  ends?: string | null;
  device: Float;
  cpu: Float;
  gib: Float;
  promised: Float;
  devices: number;
}

export interface SobolSearch {
  max_steps: string;
}

export interface Soup {
  number: number;
  key: string;
  bytes: string;
  sha256: string;
  time?: string | null;
  actor: string;
  metric?: Float;
  parts: SoupPart[];
}

export interface SoupPart {
  trial: number;
  metric: Float;
  soup?: Float;
  kept: boolean;
  note: string;
}

export interface StreamLogsRequest {
  sweep: string;
  trial?: number;
  follow: boolean;
  tail: number;
  contains: string;
}

export interface StreamLogsResponse {
  trial: number;
  node: string;
  stream: string;
  time?: string | null;
  line: string;
}

export interface SubmitSweepRequest {
  spec?: SweepSpec | null;
  idempotency_key: string;
}

export interface SubmitSweepResponse {
  sweep?: Sweep | null;
  warnings: string[];
}

export interface SuccessiveHalving {
  max_steps: string;
  trials: number;
  eta: number;
  min_steps: string;
  sampler: string;
  grow: boolean;
}

export interface Sweep {
  id: string;
  spec?: SweepSpec | null;
  state: SweepState;
  reason: string;
  submitted?: string | null;
  ended?: string | null;
  counts?: TrialCounts | null;
  best?: Trial | null;
  steps: string;
  device_seconds: Float;
  notes: SweepNote[];
  waiting: string;
  outlook?: Outlook | null;
  actor: string;
  fairness?: Fairness | null;
  soups: Soup[];
  admission?: Admission | null;
  cost?: Float;
  currency: string;
  memory: RememberedSweep[];
  annotation?: Annotation | null;
}

export interface SweepNote {
  time?: string | null;
  level: string;
  text: string;
  trial?: number;
}

export interface SweepSpec {
  name: string;
  tenant: string;
  space: Record<string, Parameter>;
  constraints: string[];
  metric: string;
  mode: string;
  tuner?: Tuner | null;
  resources?: Resources | null;
  limits?: Limits | null;
  checkpoints?: Checkpoints | null;
  max_restarts?: number;
  function?: Function | null;
  program?: Program | null;
  external?: External | null;
  labels: Record<string, string>;
  hang_timeout: string;
  throughputs: Throughput[];
  weight: Float;
  agent?: Agent | null;
  utility?: Utility | null;
  objectives: Objective[];
  deadline: string;
  traceparent: string;
  memory: string;
}

export interface TellTrialRequest {
  sweep: string;
  trial: number;
  lease_id: string;
  reports: Report[];
  finished: boolean;
  error: string;
}

export interface TellTrialResponse {
  trial?: Trial | null;
  go_on: boolean;
}

export interface Tenant {
  name: string;
  weight: Float;
  quota?: TenantQuota | null;
  limits?: TenantLimits | null;
  members: string[];
}

export interface TenantLimit {
  name: string;
  limit: Float;
  used?: Float;
  unit: string;
  reached: string;
  help: string;
}

export interface TenantLimits {
  sweeps?: number;
  device_hours?: Float;
  log_bytes: string;
  blob_bytes: string;
  max_weight?: Float;
  submits_per_minute?: number;
  spec_bytes: string;
  report_rate: string;
  report_bytes: string;
  streams?: number;
  samplers?: number;
  checkpoint_bytes: string;
  retain_sweeps: string;
}

export interface TenantQuota {
  devices?: number;
  types: Record<string, number>;
}

export interface TenantState {
  tenant?: Tenant | null;
  use?: TenantUse | null;
  added: boolean;
  limits: TenantLimit[];
}

export interface TenantUse {
  held: Record<string, number>;
  sweeps: number;
  device_hours: Float;
  month?: string | null;
  spec_bytes: string;
  checkpoint_bytes: string;
  report_bytes: string;
  report_rate: Float;
  streams: number;
  samplers: number;
  submits: number;
}

export interface Throughput {
  type: string;
  devices: number;
  spread: string;
  steps_per_second: Float;
  trial?: number;
}

export interface TrainedAgain {
  trial: number;
  from_step: string;
  step: string;
}

export interface Trial {
  sweep: string;
  number: number;
  state: TrialState;
  reason: string;
  config?: Record<string, unknown> | null;
  step: string;
  until_step: string;
  last?: Report | null;
  best?: Float;
  best_step: string;
  created?: string | null;
  ended?: string | null;
  restarts: number;
  device_seconds: Float;
  bracket: number;
  node: string;
  devices: number[];
  checkpoints: Checkpoint[];
  resumes: number;
  config_json: string;
  steps_per_second: Float;
  node_losses: number;
  suspected: boolean;
  leases: TrialLease[];
  round?: TrialRound | null;
  merges: TrialMerge[];
  rounds: number;
  attributes: Record<string, string>;
  retries: number;
  copied_from?: number;
}

export interface TrialColumn {
  kind: TrialColumnKind;
  name: string;
  type: string;
  values: string;
  words: string[];
  text: string;
  text_type: string;
}

export interface TrialCounts {
  queued: number;
  running: number;
  paused: number;
  completed: number;
  stopped: number;
  failed: number;
  cancelled: number;
  total: number;
}

export interface TrialFork {
  lease_id: string;
  places: TrialPlace[];
  state: string;
  share: string;
  steps: string;
  counted: string;
  steps_per_second: Float;
  forecast_steps_per_second: Float;
}

export interface TrialLease {
  lease_id: string;
  holder: string;
  client: string;
  state: string;
  places: TrialPlace[];
  since?: string | null;
  term_end?: string | null;
  from_step: string;
  step: string;
}

export interface TrialMerge {
  round: number;
  began?: string | null;
  time?: string | null;
  from_step: string;
  step: string;
  forks: TrialFork[];
  averaged_on: string;
  reason: string;
  verdict: MergeVerdict;
  metric?: Float;
  best_metric?: Float;
}

export interface TrialPlace {
  node: string;
  devices: number[];
  type: string;
  ended: boolean;
}

export interface TrialReport {
  trial: number;
  report?: Report | null;
  superseded: boolean;
}

export interface TrialRound {
  from_step: string;
  began?: string | null;
  ends?: string | null;
  forks: TrialFork[];
  consolidates_on: string;
  attempt: number;
}

export interface Tuner {
  random?: RandomSearch | null;
  grid?: GridSearch | null;
  sobol?: SobolSearch | null;
  successive_halving?: SuccessiveHalving | null;
  hyperband?: Hyperband | null;
  asha?: Asha | null;
  median?: MedianStopping | null;
  pbt?: Pbt | null;
  plugin?: PluginTuner | null;
  performance_curve?: PerformanceCurve | null;
  freeze_thaw?: FreezeThaw | null;
  bayes?: BayesianSearch | null;
  patient?: Patient | null;
  percentile?: Percentile | null;
  auto?: Auto | null;
  seed?: string;
  points: Record<string, unknown>[];
}

export interface UsageRow {
  values: string[];
  device_seconds: Float;
  cost?: Float;
}

export interface Utility {
  priority: Float;
  decay: Float;
  target: Float;
  kind: string;
  worth: Float;
  by: string;
}

export interface WatchSweepRequest {
  sweep: string;
  reports: boolean;
}

export interface WatchSweepResponse {
  sweep?: Sweep | null;
  trials: Trial[];
  reports: TrialReport[];
}
