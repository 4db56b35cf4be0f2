{{/* Fixed names: one installation serves a cluster. */}}
{{- define "gemini.labels" -}}
app.kubernetes.io/name: gemini
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "gemini.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* An object that stands in objects/, which is Kustomize's base, with our labels. Call with (list $ FILE ANNOTATIONS). */}}
{{- define "gemini.object" -}}
{{- $root := index . 0 }}
{{- $object := $root.Files.Get (index . 1) | fromYaml }}
{{- $_ := set $object.metadata "labels" (merge (include "gemini.labels" $root | fromYaml) ($object.metadata.labels | default dict)) }}
{{- with index . 2 }}{{ $_ := set $object.metadata "annotations" . }}{{ end }}
{{- toYaml $object }}
{{- end }}

{{/* The API server's address where the Service's cannot be reached. */}}
{{- define "gemini.apiServer" -}}
{{- with .Values.apiServer.host }}
- {name: KUBERNETES_SERVICE_HOST, value: {{ . | quote }}}
- {name: KUBERNETES_SERVICE_PORT, value: {{ $.Values.apiServer.port | quote }}}
{{- end }}
{{- end }}

{{/* What the restricted Pod Security Standard asks of a pod and of its containers. */}}
{{- define "gemini.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}
{{- define "gemini.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{/* Pods on the node's network cannot stand side by side during a rollout: their ports are taken. */}}
{{- define "gemini.strategy" -}}
type: RollingUpdate
rollingUpdate: {{ ternary "{maxSurge: 0, maxUnavailable: 1}" "{maxSurge: 1, maxUnavailable: 0}" .hostNetwork }}
{{- end }}

{{/* Where a Deployment's pods go. Call with (list VALUES COMPONENT). */}}
{{- define "gemini.placing" -}}
{{- $values := index . 0 }}
priorityClassName: {{ $values.priorityClassName | quote }}
{{- if $values.hostNetwork }}
hostNetwork: true
dnsPolicy: ClusterFirstWithHostNet
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
affinity:
{{- if $values.affinity }}
  {{- toYaml $values.affinity | nindent 2 }}
{{- else }}
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector: {matchLabels: {app.kubernetes.io/name: gemini, app.kubernetes.io/component: {{ index . 1 }}}}
{{- end }}
{{- end }}

{{/*
Certificates of mode helm, once a rendering: {ca, extender: {crt, key}, webhook, scheduler}. Those of the cluster where all
are there, else all new, from an authority whose key nobody keeps.
*/}}
{{- define "gemini.certificates" -}}
{{- if not (hasKey .Values.certificates "made") }}
  {{- $made := dict }}
  {{- range $part := list "extender" "webhook" "scheduler" }}
    {{- $secret := lookup "v1" "Secret" $.Release.Namespace (printf "gemini-%s-tls" $part) }}
    {{- with $secret.data }}
      {{- if and (index . "ca.crt") (index . "tls.crt") (index . "tls.key") }}
        {{- $_ := set $made "ca" (index . "ca.crt" | b64dec) }}
        {{- $_ := set $made $part (dict "crt" (index . "tls.crt" | b64dec) "key" (index . "tls.key" | b64dec)) }}
      {{- end }}
    {{- end }}
  {{- end }}
  {{- if lt (len $made) 4 }}
    {{- $days := int .Values.certificates.days }}
    {{- $ca := genCA "gemini" $days }}
    {{- $made = dict "ca" $ca.Cert }}
    {{- range $part := list "extender" "webhook" "scheduler" }}
      {{- $name := printf "gemini-%s" $part }}
      {{- $hosts := list (printf "%s.%s.svc" $name $.Release.Namespace) (printf "%s.%s" $name $.Release.Namespace) $name }}
      {{- $pair := genSignedCert $name (list) $hosts $days $ca }}
      {{- $_ := set $made $part (dict "crt" $pair.Cert "key" $pair.Key) }}
    {{- end }}
  {{- end }}
  {{- $_ := set .Values.certificates "made" $made }}
{{- end }}
{{- end }}

{{/* What changes when the certificates were made anew: the authority is read once, at the start of a process. */}}
{{- define "gemini.certificatesStamp" -}}
{{- if eq .Values.certificates.mode "helm" }}
{{- include "gemini.certificates" . }}
checksum/certificates: {{ .Values.certificates.made.ca | sha256sum | trunc 16 | quote }}
{{- end }}
{{- end }}

{{/*
KubeSchedulerConfiguration: `extenders` for any scheduler. Call with (list $ FOLDER), where the client's files are. Core is
counted by both sides, which preemption needs.
*/}}
{{- define "gemini.extenders" -}}
{{- $root := index . 0 }}
{{- $folder := index . 1 }}
- urlPrefix: https://gemini-extender.{{ $root.Release.Namespace }}.svc:{{ $root.Values.extender.port }}
  filterVerb: filter
  prioritizeVerb: prioritize
  bindVerb: bind
  preemptVerb: preempt
  weight: 1
  nodeCacheCapable: true
  enableHTTPS: true
  httpTimeout: 5s
  tlsConfig:
    caFile: {{ $folder }}/ca.crt
    certFile: {{ $folder }}/tls.crt
    keyFile: {{ $folder }}/tls.key
  managedResources:
    - {name: gemini.io/gpu-core, ignoredByScheduler: false}
    - {name: gemini.io/gpu-memory, ignoredByScheduler: true}
    - {name: gemini.io/gpu-memory-ratio, ignoredByScheduler: true}
    - {name: aliyun.com/gpu-mem, ignoredByScheduler: false}
    {{- if $root.Values.scheduler.mixedNodes }}
    - {name: nvidia.com/gpu, ignoredByScheduler: false}
    {{- end }}
{{- end }}

{{/* The spellings of a share that are read in all pods; who serves aliyun.com/gpu-mem has it read. */}}
{{- define "gemini.spellings" -}}
{{- $read := concat (list "gemini.io") .Values.webhook.spellings }}
{{- if .Values.node.gpushare.enabled }}{{ $read = append $read "aliyun.com" }}{{ end }}
{{- toYaml ($read | uniq) }}
{{- end }}

{{/* Whether the cluster has ResourceClaims and their kin: "true", or nothing. */}}
{{- define "gemini.servesClaims" -}}
{{- if semverCompare ">=1.34.0-0" .Capabilities.KubeVersion.Version }}true{{ end }}
{{- end }}
