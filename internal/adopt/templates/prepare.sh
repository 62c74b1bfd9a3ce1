# Written by csi-attach-hub adopt.
# Makes the objects that the proxy needs beside the driver's workload, and brings the public CA certificates of the hub and of
# the proxy to each other. It is safe to repeat. With the argument "remove" it takes all that away.
set -eu
cd "$(dirname "$0")"
ca=$(mktemp)
trap 'rm -f "$ca"' EXIT

# save NAMESPACE SECRET: writes the CA certificate of a Secret to the file $ca.
save() {
  kubectl -n "$1" get secret "$2" -o jsonpath='{.data.tls\.crt}' | base64 -d >"$ca"
}

# give NAMESPACE CONFIGMAP KEY FILE MANAGER: puts a CA certificate into a ConfigMap. The keys of other drivers stay.
give() {
  test -s "$4"
  kubectl -n "$1" create configmap "$2" --from-file="$3=$4" --dry-run=client -o yaml |
    kubectl apply --server-side --field-manager="$5" -f -
}

if [ "${1-}" = remove ]; then
  kubectl delete --ignore-not-found -k objects
{{- range .Plans}}
  kubectl -n {{.Workload.Namespace}} delete --ignore-not-found secret {{.Base}}-tls{{if not $.Options.OwnSecrets}} {{.Base}}-ca{{end}}
  # without the key of this driver
  kubectl -n {{$.Options.HubNamespace}} create configmap csi-attach-hub-driver-cas --dry-run=client -o yaml |
    kubectl apply --server-side --field-manager={{.Base}} -f -
{{- end}}
  echo "ConfigMap attach-hub-ca stays for other drivers of the namespace."
  exit
fi

# The hub's CA, if trust-manager does not bring it (value proxies.trustManager of the hub's chart).
{{- if .Options.OwnSecrets}}
if ! kubectl -n {{$.Options.HubNamespace}} get secret csi-attach-hub-ca; then
  kubectl -n {{.Workload.Namespace}} get configmap attach-hub-ca # you have made it
elif{{else}}
if{{end}} [ -z "$(kubectl -n {{.Workload.Namespace}} get configmap -l trust.cert-manager.io/bundle=attach-hub-ca -o name)" ]; then
  save {{$.Options.HubNamespace}} csi-attach-hub-ca
  give {{.Workload.Namespace}} attach-hub-ca ca.crt "$ca" attach-hub
fi
kubectl apply -k objects
{{- range .Plans}}
{{- if not $.Options.OwnSecrets}}
kubectl -n {{.Workload.Namespace}} wait --for=condition=Ready --timeout=2m certificate/{{.Base}}-ca certificate/{{.Base}}
save {{.Workload.Namespace}} {{.Base}}-ca
give {{$.Options.HubNamespace}} csi-attach-hub-driver-cas {{.Driver}}.crt "$ca" {{.Base}}
{{- else}}
give {{$.Options.HubNamespace}} csi-attach-hub-driver-cas {{.Driver}}.crt {{.Driver}}.crt {{.Base}}
{{- end}}
{{- end}}
