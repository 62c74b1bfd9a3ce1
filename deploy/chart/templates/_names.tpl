{{/* Names and parts that several objects have. Each object is that of deploy/base or deploy/components, which have the reasons. */}}

{{- define "hub.name" -}}
{{ .Values.fullnameOverride | default "csi-attach-hub" }}
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

{{/* The label of all objects, and the selector of the Pods. csi-attach-hub status finds Pods by it. */}}
{{- define "hub.labels" -}}
app.kubernetes.io/name: csi-attach-hub
{{- end }}

{{/* Labels of the hub's Pods, by which the Service finds them: it cannot exclude the Pod of the Job preflight otherwise. */}}
{{- define "hub.podLabels" -}}
{{ include "hub.labels" . }}
{{- if .Values.preflight.job.enabled }}
app.kubernetes.io/component: hub
{{- end }}
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
    name: {{ include "hub.name" (index . 0) }}
    namespace: {{ (index . 0).Release.Namespace }}
{{- end }}

{{/* A file of files/, which kustomize uses as it is, with the names of this release: the root and the path. */}}
{{- define "hub.file" -}}
{{- $root := index . 0 -}}
{{- $name := include "hub.name" $root -}}
{{- $namespace := $root.Release.Namespace -}}
{{- $text := $root.Files.Get (index . 1)
  | replace " name: csi-attach-hub" (printf " name: %s" $name)
  | replace " policyName: csi-attach-hub" (printf " policyName: %s" $name)
  | replace " namespace: csi-attach-hub" (printf " namespace: %s" $namespace)
  | replace "'csi-attach-hub'" (printf "'%s'" $namespace)
  | replace ":csi-attach-hub:csi-attach-hub" (printf ":%s:%s" $namespace $name)
  | replace "job=\"csi-attach-hub\"" (printf "job=\"%s\"" $name)
  | replace "job=\\\"csi-attach-hub\\\"" (printf "job=\\\"%s\\\"" $name)
  | replace " -n csi-attach-hub " (printf " -n %s " $namespace)
  | replace " deployment csi-attach-hub " (printf " deployment %s " $name) }}
{{- regexReplaceAll " csi-attach-hub-(drivers|metrics|\\*)" $text (printf " %s-${1}" $name) }}
{{- end }}

{{/* The Secret of the hub's certificate for drivers. */}}
{{- define "hub.clientSecret" -}}
{{ .Values.proxies.existingSecret | default (printf "%s-client-tls" (include "hub.name" .)) }}
{{- end }}

{{/* discovery.csiDrivers as JSON, {} if it is not enabled. */}}
{{- define "hub.csiDrivers" -}}
{{- $objects := get .Values.discovery "csiDrivers" | default dict -}}
{{ get $objects "enabled" | empty | ternary dict $objects | toJson }}
{{- end }}
