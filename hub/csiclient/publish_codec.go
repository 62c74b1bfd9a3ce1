package csiclient

import (
	"fmt"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

const (
	// maxContext bounds the keys and values of a publish context, in bytes. The API server refuses a
	// longer status.attachmentMetadata.
	maxContext = 256 << 10
	// maxContextKeys bounds the keys of a publish context: decoded, an answer of many short keys
	// takes ten times its size.
	maxContextKeys = 4096
)

// Numbers of fields in csi.proto.
const (
	contextField protowire.Number = 1 // of ControllerPublishVolumeResponse
	keyField     protowire.Number = 1 // of an entry of a map
	valueField   protowire.Number = 2 // of an entry of a map
)

// publishCodec decodes an answer to ControllerPublishVolume unless its publish context is too large.
type publishCodec struct{ encoding.CodecV2 }

func newPublishCodec() publishCodec { return publishCodec{encoding.GetCodecV2(proto.Name)} }

// Name implements encoding.CodecV2. With a name, the content type would be another one than that of other calls.
func (publishCodec) Name() string { return "" }

// Unmarshal implements encoding.CodecV2.
func (c publishCodec) Unmarshal(data mem.BufferSlice, response any) error {
	whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer whole.Free()
	if err := checkContext(whole.ReadOnlyData()); err != nil {
		return err
	}
	return c.CodecV2.Unmarshal(mem.BufferSlice{whole}, response)
}

// contextTooLarge begins the errors of checkContext.
const contextTooLarge = "the publish context has "

// checkContext returns an error if the publish context of an encoded answer is too large.
func checkContext(answer []byte) error {
	keys, size := 0, 0
	err := eachField(answer, func(field protowire.Number, entry []byte) error {
		if field != contextField {
			return nil
		}
		keys++
		return eachField(entry, func(field protowire.Number, text []byte) error {
			if field == keyField || field == valueField {
				size += len(text)
			}
			return nil
		})
	})
	switch {
	case err != nil:
		return err
	case keys > maxContextKeys:
		return fmt.Errorf(contextTooLarge+"%d keys, the limit is %d", keys, maxContextKeys)
	case size > maxContext:
		return fmt.Errorf(contextTooLarge+"%d bytes, the limit of Kubernetes is %d", size, maxContext)
	}
	return nil
}
