{{/* Name of everything namespaced. The release `spare` gives spare-operator, as the plain manifests have it. */}}
{{- define "spare.name" -}}
{{ printf "%s-operator" .Release.Name | trunc 63 }}
{{- end }}

{{- define "spare.selector" -}}
app.kubernetes.io/name: spare-operator
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "spare.labels" -}}
{{ include "spare.selector" . }}
app.kubernetes.io/part-of: spare
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "spare.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* What the operator does with the jobs of a namespace, in a Role or a ClusterRole. */}}
{{- define "spare.rules" -}}
- apiGroups: [spare.training]
  resources: [sparejobs]
  verbs: [get, list, watch, delete] # delete: ttlSecondsAfterFinished
- apiGroups: [spare.training]
  resources: [sparejobs/status]
  verbs: [update]
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch, create, delete, patch] # patch: the label of a spare that takes the place of a group
- apiGroups: [""]
  resources: [configmaps] # the newest plan
  verbs: [get, create, update]
- apiGroups: [""]
  resources: [secrets] # token and certificates of each job
  verbs: [get, create]
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- if .Values.jobNetworkPolicy.enabled }}
- apiGroups: [networking.k8s.io]
  resources: [networkpolicies] # who may connect to the pods of each job
  verbs: [get, create, update]
{{- end }}
{{- end }}
