{{- define "modelgate.name" -}}
{{- printf "%s" .Release.Name | trunc 53 | trimSuffix "-" -}}
{{- end -}}

{{- define "modelgate.selector" -}}
app.kubernetes.io/name: modelgate
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* The label of the Service of the metrics, beside those of all resources. */}}
{{- define "modelgate.metrics" -}}
app.kubernetes.io/component: metrics
{{- end -}}

{{- define "modelgate.labels" -}}
{{ include "modelgate.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}
