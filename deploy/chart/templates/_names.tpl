{{/* Names and parts that several objects have. */}}

{{- define "hub.name" -}}
{{ .Values.fullnameOverride | default .Values.nameOverride | default "csi-attach-hub" }}
{{- end }}

{{- define "hub.account" -}}
{{ .Values.serviceAccount.name | default (include "hub.name" .) }}
{{- end }}

{{/* metadata of an object: the root, the end of its name, and its namespace, "" for none. */}}
{{- define "hub.metadata" -}}
{{- $root := index . 0 -}}
metadata:
  name: {{ include "hub.name" $root }}{{ index . 1 }}
  {{- with index . 2 }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "hub.labels" $root | nindent 4 }}
{{- end }}

{{/* The selector of the Pods. csi-attach-hub status finds Pods by it. */}}
{{- define "hub.selector" -}}
app.kubernetes.io/name: csi-attach-hub
{{- end }}

{{- define "hub.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "hub.selector" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* A Role or ClusterRole and its binding to the hub's ServiceAccount: the root, the end of the name, the namespace or "", the rules. */}}
{{- define "hub.role" -}}
{{- $kind := index . 2 | empty | ternary "ClusterRole" "Role" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}
{{ include "hub.metadata" . }}
rules:
  {{- index . 3 | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ $kind }}Binding
{{ include "hub.metadata" . }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ $kind }}
  name: {{ include "hub.name" (index . 0) }}{{ index . 1 }}
subjects:
  - kind: ServiceAccount
    name: {{ include "hub.account" (index . 0) }}
    namespace: {{ (index . 0).Release.Namespace }}
{{- end }}

{{/* A file of files/ with the names of this release: the root and the path. */}}
{{- define "hub.file" -}}
{{- $root := index . 0 -}}
{{- $name := include "hub.name" $root -}}
{{- $root.Files.Get (index . 1)
  | replace "job=\"csi-attach-hub\"" (printf "job=\"%s\"" $name)
  | replace "job=\\\"csi-attach-hub\\\"" (printf "job=\\\"%s\\\"" $name)
  | replace " -n csi-attach-hub " (printf " -n %s " $root.Release.Namespace)
  | replace " deployment csi-attach-hub " (printf " deployment %s " $name)
  | replace " csi-attach-hub-drivers" (printf " %s-drivers" $name)
  | replace " csi-attach-hub-metrics" (printf " %s-metrics" $name) }}
{{- end }}

{{/* The Secret of the hub's certificate for drivers. */}}
{{- define "hub.clientSecret" -}}
{{ .Values.proxies.existingSecret | default (printf "%s-client-tls" (include "hub.name" .)) }}
{{- end }}

{{/* The drivers by name, as JSON. */}}
{{- define "hub.drivers" -}}
{{- if kindIs "slice" .Values.drivers }}
{{- $map := dict }}
{{- range .Values.drivers }}
{{- $_ := set $map .name (omit . "name") }}
{{- end }}
{{- fail (printf "drivers: this is a list; write a map by the names of the drivers, so that files of values can be merged:\n\n%s\n" (dict "drivers" $map | toYaml)) }}
{{- end }}
{{- toJson .Values.drivers }}
{{- end }}

{{/* discovery.csiDrivers as JSON, {} if it is not enabled. */}}
{{- define "hub.csiDrivers" -}}
{{- $objects := get .Values.discovery "csiDrivers" | default dict -}}
{{ get $objects "enabled" | empty | ternary dict $objects | toJson }}
{{- end }}
