// Package rights lists the rights that a hub needs in a cluster, and asks the API server at the
// start whether the hub has them. Otherwise the first volume that needs a right would fail
// before anybody knows that the right is missing.
//
// Needed returns the only list: tests compare it with deploy/ and with the requests of a
// running hub. Missing checks each right by a SelfSubjectAccessReview, which every
// account may create. Watch asks until it has an answer, and logs it.
//
// The lease of a driver in another namespace is checked by its name, since Roles should grant
// nothing on the leases of others. Nobody can grant to create a Lease by name, so create is not in
// the list: mostly the driver's csi-attacher has made it, and else the driver's reason says what to do.
//
// The package does not check Secrets: the Secrets that PersistentVolumes name are not known
// beforehand. If a Secret may not be read, the VolumeAttachment says so.
package rights
