// Package rights says what a hub must be allowed to do in a cluster, and asks the API
// server at the start whether it is: a right that is missing is otherwise found
// by the first volume that needs it.
//
// Needed is the list, and the only one: deploy/ is tested against it, and so is what a
// running hub does. Missing asks for each right, by SelfSubjectAccessReview, which every
// account may create. Watch does that until it has an answer, and logs it.
//
// It does not ask for Secrets: which ones PersistentVolumes name is not known beforehand.
// Where one may not be read, the VolumeAttachment says so.
package rights
