{{- define "outbid.labels" -}}
app.kubernetes.io/name: outbid
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "outbid.spread" -}}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 100
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        labelSelector: {matchLabels: {app.kubernetes.io/instance: {{ .root.Release.Name }}, app.kubernetes.io/component: {{ .component }}}}
{{- end }}

{{- define "outbid.placement" -}}
{{- with .nodeSelector }}
nodeSelector: {{ toJson . }}
{{- end }}
{{- with .tolerations }}
tolerations: {{ toJson . }}
{{- end }}
{{- end }}

{{- define "outbid.pullSecrets" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- end }}

{{/* By default the image that make image builds. */}}
{{- define "outbid.image" -}}
{{ default (printf "outbid:%s" .Chart.AppVersion) .Values.image }}
{{- end }}

{{/* What every container gets that needs no privileges. */}}
{{- define "outbid.restricted" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  runAsNonRoot: true
  capabilities: {drop: [ALL]}
{{- end }}

{{- define "outbid.claim" -}}
volumeClaimTemplates:
- metadata: {name: data}
  spec:
    accessModes: [ReadWriteOnce]
    {{- with .storageClass }}
    storageClassName: {{ . }}
    {{- end }}
    resources: {requests: {storage: {{ .storage }}}}
{{- end }}

{{- define "outbid.natsURL" -}}
{{- $n := printf "%s-nats" .Release.Name -}}
{{- $urls := list -}}
{{- range $i := until (int .Values.nats.replicas) -}}
{{- $urls = append $urls (printf "tls://%s-%d.%s.%s.svc:4222" $n $i $n $.Release.Namespace) -}}
{{- end -}}
{{- join "," $urls -}}
{{- end }}
