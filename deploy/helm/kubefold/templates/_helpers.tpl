{{- define "kubefold.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "kubefold.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" }}
{{- else if contains (include "kubefold.name" .) .Release.Name }}
{{- .Release.Name | trunc 50 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "kubefold.name" .) | trunc 50 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "kubefold.selector" -}}
app.kubernetes.io/name: {{ include "kubefold.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "kubefold.labels" -}}
{{ include "kubefold.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{- define "kubefold.serviceAccount" -}}
{{- default (include "kubefold.fullname" .) .Values.serviceAccount.name }}
{{- end }}

{{- define "kubefold.configSecret" -}}
{{- if .Values.existingConfigSecret }}
{{- if ne (toJson .Values.config) "{\"members\":[]}" }}
{{- fail "config and existingConfigSecret are both given; keep one of them" }}
{{- end }}
{{- .Values.existingConfigSecret }}
{{- else }}
{{- printf "%s-config" (include "kubefold.fullname" .) }}
{{- end }}
{{- end }}

{{- define "kubefold.tlsSecret" -}}
{{- if .Values.tls.secretName }}
{{- .Values.tls.secretName }}
{{- else if .Values.tls.certManager.enabled }}
{{- printf "%s-tls" (include "kubefold.fullname" .) }}
{{- end }}
{{- end }}

{{- /* How many processes run. Several need a state and a key of it that all of them have. */ -}}
{{- define "kubefold.replicas" -}}
{{- if and .Values.statePostgres.secretName .Values.stateKey.secretName }}
{{- .Values.statePostgres.replicas }}
{{- else }}
{{- 1 }}
{{- end }}
{{- end }}

{{- define "kubefold.externalUrl" -}}
{{- default (printf "https://%s.%s.svc:%v" (include "kubefold.fullname" .) .Release.Namespace .Values.service.port) .Values.externalUrl }}
{{- end }}

{{- /* The version of TLSRoutes that the cluster has. Without a cluster, as for helm template: the one that has been there since
version 1.5 of the Gateway API. */ -}}
{{- define "kubefold.tlsRoute" -}}
{{- $group := "gateway.networking.k8s.io" -}}
{{- $version := "v1" -}}
{{- range list "v1alpha2" "v1alpha3" "v1" -}}
{{- if $.Capabilities.APIVersions.Has (printf "%s/%s/TLSRoute" $group .) -}}{{- $version = . -}}{{- end -}}
{{- end -}}
{{- printf "%s/%s" $group $version -}}
{{- end -}}
