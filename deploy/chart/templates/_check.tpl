{{/* Values that are valid, but of which no Pod can come that works. */}}
{{- define "hub.check" -}}
{{- if and .Values.openshift .Values.hostSockets.enabled }}
{{- fail "openshift, hostSockets.enabled: the security context constraint restricted-v2 allows neither root nor folders of the host: set one of the two to false" }}
{{- end }}
{{- if regexMatch ":[^/]*$" .Values.image.repository }}
{{- fail (printf "image.repository: %s has a tag: write it as image.tag" .Values.image.repository) }}
{{- end }}
{{- $folders := .Values.proxies.enabled | ternary (list "/tls") list }}
{{- range .Values.extraVolumeMounts }}
{{- $folders = append $folders .mountPath }}
{{- end }}
{{- $wrong := list }}
{{- $entries := list }}
{{- range $name, $driver := include "hub.drivers" . | fromJson }}
{{- $entries = append $entries (dict "what" (printf "drivers: %s" $name) "tls" (get $driver "tls")) }}
{{- end }}
{{- $objects := include "hub.csiDrivers" . | fromJson }}
{{- range append $entries (dict "what" "discovery.csiDrivers" "tls" (get $objects "tls")) }}
{{- $what := .what }}
{{- range $key, $file := pick (.tls | default dict) "caFile" "certFile" "keyFile" }}
{{- $found := not (hasPrefix "/tls/" $file) }}
{{- range $folders }}
{{- $found = or $found (eq $file .) (hasPrefix (printf "%s/" (trimSuffix "/" .)) $file) }}
{{- end }}
{{- if not $found }}
{{- $wrong = append $wrong (printf "%s: tls.%s %s" $what $key $file) }}
{{- end }}
{{- end }}
{{- end }}
{{- with $wrong }}
{{- fail (printf "%s: the Pod has no folder /tls: set proxies.enabled to true, or mount a volume of yours with extraVolumes and extraVolumeMounts" (join ", " .)) }}
{{- end }}
{{- end }}
