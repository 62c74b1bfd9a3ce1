package cache

import "google.golang.org/protobuf/encoding/protowire"

// Numbers of fields in k8s.io/api/core/v1/generated.proto.
const (
	specField      protowire.Number = 2  // of PersistentVolume
	csiField       protowire.Number = 22 // of PersistentVolumeSource
	driverField    protowire.Number = 1  // of CSIPersistentVolumeSource
	secretField    protowire.Number = 6  // of CSIPersistentVolumeSource: controllerPublishSecretRef
	secretName     protowire.Number = 1  // of SecretReference
	claimRefField  protowire.Number = 4  // of PersistentVolumeSpec
	sourceField    protowire.Number = 2  // of PersistentVolumeSpec
	namespaceField protowire.Number = 2  // of ObjectReference and SecretReference
	nameField      protowire.Number = 3  // of ObjectReference
)

// protoField returns the content of a string or message field of an encoded message, nil if the message does not
// have the field. The content is a part of message.
func protoField(message []byte, field protowire.Number) []byte {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return nil
		}
		message = message[n:]
		if number == field && kind == protowire.BytesType {
			content, _ := protowire.ConsumeBytes(message)
			return content
		}
		if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
			return nil
		}
		message = message[n:]
	}
	return nil
}
