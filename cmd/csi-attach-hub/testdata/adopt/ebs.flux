flux: 7 files written
-- exit code 0 --
-- flux/active.yaml --
# Written by csi-attach-hub adopt.
# Add it to the HelmRelease of the driver. Without csi-attacher: the hub works.
spec:
  postRenderers:
  - kustomize:
      patches:
      - patch: |
          apiVersion: apps/v1
          kind: Deployment
          metadata:
            name: ebs-csi-controller
            namespace: kube-system
          spec:
            template:
              metadata:
                annotations:
                  kubectl.kubernetes.io/default-container: ebs-plugin
                labels:
                  attach-hub/proxy: "true"
                  driver.attach-hub/ebs.csi.aws.com: "true"
              spec:
                containers:
                - args:
                  - proxy
                  - --listen=:9443
                  - --health-listen=:9809
                  - --target=unix:///var/lib/csi/sockets/pluginproxy/csi.sock
                  - --tls-cert=/attach-hub/tls/tls.crt
                  - --tls-key=/attach-hub/tls/tls.key
                  - --client-ca=/attach-hub/ca/ca.crt
                  - --allow-san=csi-attach-hub
                  - --shutdown-grace=25s
                  image: registry.example.com/csi-attach-hub:v1
                  imagePullPolicy: IfNotPresent
                  livenessProbe:
                    failureThreshold: 6
                    periodSeconds: 10
                    tcpSocket:
                      port: 9443
                  name: attach-hub-ebs-csi-aws-com
                  ports:
                  - containerPort: 9443
                    name: attach-hub-9443
                  readinessProbe:
                    failureThreshold: 3
                    httpGet:
                      path: /readyz
                      port: 9809
                    periodSeconds: 10
                    timeoutSeconds: 5
                  resources:
                    limits:
                      memory: 128Mi
                    requests:
                      cpu: 10m
                      memory: 20Mi
                  securityContext:
                    allowPrivilegeEscalation: false
                    capabilities:
                      drop:
                      - ALL
                    readOnlyRootFilesystem: true
                    runAsGroup: 1000
                    runAsUser: 1000
                    seccompProfile:
                      type: RuntimeDefault
                  terminationMessagePolicy: FallbackToLogsOnError
                  volumeMounts:
                  - mountPath: /var/lib/csi/sockets/pluginproxy
                    name: socket-dir
                    readOnly: true
                  - mountPath: /attach-hub/tls
                    name: attach-hub-ebs-csi-aws-com-tls
                    readOnly: true
                  - mountPath: /attach-hub/ca
                    name: attach-hub-ca
                    readOnly: true
                volumes:
                - configMap:
                    name: attach-hub-ca
                  name: attach-hub-ca
                - name: attach-hub-ebs-csi-aws-com-tls
                  secret:
                    defaultMode: 288 # 0440
                    secretName: attach-hub-ebs-csi-aws-com-tls
        target:
          kind: Deployment
          name: ebs-csi-controller
          namespace: kube-system
      - patch: |
          apiVersion: apps/v1
          kind: Deployment
          metadata:
            name: ebs-csi-controller
            namespace: kube-system
          spec:
            template:
              spec:
                containers:
                - $patch: delete
                  name: csi-attacher
        target:
          kind: Deployment
          name: ebs-csi-controller
          namespace: kube-system
-- flux/drivers.yaml --
# Written by csi-attach-hub adopt.
apiVersion: attach-hub/v1alpha1
kind: DriverConfig
drivers:
  - name: ebs.csi.aws.com
    endpoint: tcp://attach-hub-ebs-csi-aws-com.kube-system.svc:9443
    tls: {caFile: /tls/ebs.csi.aws.com.crt, certFile: /tls/tls.crt, keyFile: /tls/tls.key, serverName: attach-hub-ebs-csi-aws-com}
    mode: observe # until you hand the driver over
    lease: {namespace: kube-system} # of csi-attacher's Lease
    timeout: 6m # --timeout
    kubeAPI:
      qps: 20 # --kube-api-qps
      burst: 100 # --kube-api-burst
    workers: 100 # --worker-threads
    retry:
      max: 30m # --retry-interval-max
-- flux/hub/kustomization.yaml --
# Written by csi-attach-hub adopt.
# For the overlay of the hub: name this folder under components.
apiVersion: kustomize.config.k8s.io/v1alpha1
kind: Component
resources:
  - networkpolicy.yaml
-- flux/hub/networkpolicy.yaml --
# Written by csi-attach-hub adopt.
# The hub's way to the proxy of the driver.
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: attach-hub-ebs-csi-aws-com
  namespace: csi-attach-hub
  labels:
    app.kubernetes.io/name: csi-attach-hub
spec:
  podSelector:
    matchLabels:
      app.kubernetes.io/name: csi-attach-hub
  policyTypes: [Egress]
  egress:
    - to:
        - namespaceSelector:
            matchLabels:
              kubernetes.io/metadata.name: kube-system
          podSelector:
            matchLabels:
              driver.attach-hub/ebs.csi.aws.com: "true"
      ports:
        - port: 9443
          protocol: TCP
-- flux/objects/kustomization.yaml --
# Written by csi-attach-hub adopt.
# Apply it before the HelmRelease has the patches: a Flux Kustomization with this folder as path.
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
  - objects.yaml
-- flux/objects/objects.yaml --
# Written by csi-attach-hub adopt.
# The hub's way to the driver. Of several replicas of the driver, the Service keeps to one: CSI controllers do not
# expect calls for one volume at two replicas.
apiVersion: v1
kind: Service
metadata:
  name: attach-hub-ebs-csi-aws-com
  namespace: kube-system
  labels:
    app.kubernetes.io/name: csi-attach-hub
spec:
  selector:
    driver.attach-hub/ebs.csi.aws.com: "true"
  sessionAffinity: ClientIP
  sessionAffinityConfig:
    clientIP:
      timeoutSeconds: 86400 # the longest that there is
  ports:
    - name: attach-hub
      port: 9443
      targetPort: 9443
---
# An authority for this driver alone. With an issuer for the whole cluster, whoever may make a Certificate anywhere could
# pose as the driver.
apiVersion: cert-manager.io/v1
kind: Issuer
metadata:
  name: attach-hub-ebs-csi-aws-com-self-signed
  namespace: kube-system
  labels:
    app.kubernetes.io/name: csi-attach-hub
spec:
  selfSigned: {}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata:
  name: attach-hub-ebs-csi-aws-com-ca
  namespace: kube-system
  labels:
    app.kubernetes.io/name: csi-attach-hub
spec:
  isCA: true
  commonName: attach-hub-ebs-csi-aws-com-ca
  secretName: attach-hub-ebs-csi-aws-com-ca
  duration: 87600h # ten years: the hub has a copy of it
  privateKey:
    algorithm: ECDSA
    size: 256
    rotationPolicy: Never # a new key would invalidate the hub's copy
  issuerRef:
    kind: Issuer
    name: attach-hub-ebs-csi-aws-com-self-signed
---
apiVersion: cert-manager.io/v1
kind: Issuer
metadata:
  name: attach-hub-ebs-csi-aws-com-ca
  namespace: kube-system
  labels:
    app.kubernetes.io/name: csi-attach-hub
spec:
  ca:
    secretName: attach-hub-ebs-csi-aws-com-ca
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata:
  name: attach-hub-ebs-csi-aws-com
  namespace: kube-system
  labels:
    app.kubernetes.io/name: csi-attach-hub
spec:
  secretName: attach-hub-ebs-csi-aws-com-tls
  dnsNames: [attach-hub-ebs-csi-aws-com] # tls.serverName in drivers.yaml
  usages: [digital signature, server auth]
  duration: 2160h
  privateKey:
    algorithm: ECDSA
    size: 256
    rotationPolicy: Always
  issuerRef:
    kind: Issuer
    name: attach-hub-ebs-csi-aws-com-ca
---
# Only the hub may connect to the proxy, and only the node, which no policy closes out, to its health port
# 9809. All other ports stay open: without the second rule this policy would close them. If another policy selects
# these Pods already, add --other-policies: the other policy says what is open, and the second rule would add to it.
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: attach-hub-ebs-csi-aws-com
  namespace: kube-system
  labels:
    app.kubernetes.io/name: csi-attach-hub
spec:
  podSelector:
    matchLabels:
      driver.attach-hub/ebs.csi.aws.com: "true"
  policyTypes: [Ingress]
  ingress:
    - from:
        - namespaceSelector:
            matchLabels:
              kubernetes.io/metadata.name: csi-attach-hub
          podSelector:
            matchLabels:
              app.kubernetes.io/name: csi-attach-hub
      ports:
        - port: 9443
          protocol: TCP
    - ports:
        - port: 1
          endPort: 9442
          protocol: TCP
        - port: 9444
          endPort: 9808
          protocol: TCP
        - port: 9810
          endPort: 65535
          protocol: TCP
        - port: 1
          endPort: 65535
          protocol: UDP
---
# The hub's rights in this namespace, by name.
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: attach-hub-ebs-csi-aws-com
  namespace: kube-system
  labels:
    app.kubernetes.io/name: csi-attach-hub
rules:
  # The Lease that csi-attacher has made. A Role cannot grant to create a Lease by name.
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    resourceNames: [external-attacher-leader-ebs-csi-aws-com]
    verbs: [get, list, watch, update]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: attach-hub-ebs-csi-aws-com
  namespace: kube-system
  labels:
    app.kubernetes.io/name: csi-attach-hub
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: attach-hub-ebs-csi-aws-com
subjects:
  - kind: ServiceAccount
    name: csi-attach-hub
    namespace: csi-attach-hub
-- flux/observe.yaml --
# Written by csi-attach-hub adopt.
# Add it to the HelmRelease of the driver. The proxy beside csi-attacher, which goes on working.
spec:
  postRenderers:
  - kustomize:
      patches:
      - patch: |
          apiVersion: apps/v1
          kind: Deployment
          metadata:
            name: ebs-csi-controller
            namespace: kube-system
          spec:
            template:
              metadata:
                annotations:
                  kubectl.kubernetes.io/default-container: ebs-plugin
                labels:
                  attach-hub/proxy: "true"
                  driver.attach-hub/ebs.csi.aws.com: "true"
              spec:
                containers:
                - args:
                  - proxy
                  - --listen=:9443
                  - --health-listen=:9809
                  - --target=unix:///var/lib/csi/sockets/pluginproxy/csi.sock
                  - --tls-cert=/attach-hub/tls/tls.crt
                  - --tls-key=/attach-hub/tls/tls.key
                  - --client-ca=/attach-hub/ca/ca.crt
                  - --allow-san=csi-attach-hub
                  - --shutdown-grace=25s
                  image: registry.example.com/csi-attach-hub:v1
                  imagePullPolicy: IfNotPresent
                  livenessProbe:
                    failureThreshold: 6
                    periodSeconds: 10
                    tcpSocket:
                      port: 9443
                  name: attach-hub-ebs-csi-aws-com
                  ports:
                  - containerPort: 9443
                    name: attach-hub-9443
                  readinessProbe:
                    failureThreshold: 3
                    httpGet:
                      path: /readyz
                      port: 9809
                    periodSeconds: 10
                    timeoutSeconds: 5
                  resources:
                    limits:
                      memory: 128Mi
                    requests:
                      cpu: 10m
                      memory: 20Mi
                  securityContext:
                    allowPrivilegeEscalation: false
                    capabilities:
                      drop:
                      - ALL
                    readOnlyRootFilesystem: true
                    runAsGroup: 1000
                    runAsUser: 1000
                    seccompProfile:
                      type: RuntimeDefault
                  terminationMessagePolicy: FallbackToLogsOnError
                  volumeMounts:
                  - mountPath: /var/lib/csi/sockets/pluginproxy
                    name: socket-dir
                    readOnly: true
                  - mountPath: /attach-hub/tls
                    name: attach-hub-ebs-csi-aws-com-tls
                    readOnly: true
                  - mountPath: /attach-hub/ca
                    name: attach-hub-ca
                    readOnly: true
                volumes:
                - configMap:
                    name: attach-hub-ca
                  name: attach-hub-ca
                - name: attach-hub-ebs-csi-aws-com-tls
                  secret:
                    defaultMode: 288 # 0440
                    secretName: attach-hub-ebs-csi-aws-com-tls
        target:
          kind: Deployment
          name: ebs-csi-controller
          namespace: kube-system
