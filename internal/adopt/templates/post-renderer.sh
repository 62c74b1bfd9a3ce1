#!/bin/sh
# Written by csi-attach-hub adopt.
# A post-renderer for Helm: reads the manifests of a release, and prints them as they are at a step (its argument).
set -eu
step=${1:?the step is missing: {{if .Proxy}}observe or {{end}}active}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp -R "$(dirname "$0")/." "$folder"
cat >"$folder/original/manifest.yaml"
for container in{{range .Plans}} {{.Container.Name}}{{end}}; do
  grep -Eq "name: *[\"']?$container([^-a-z0-9]|\$)" "$folder/original/manifest.yaml" || {
    echo "the chart has no container $container: run csi-attach-hub adopt again" >&2
    exit 1
  }
done
kubectl kustomize "$folder/$step"
