package csiclient

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// Numbers of fields in csi.proto.
const (
	entriesField   protowire.Number = 1 // of ListVolumesResponse
	nextTokenField protowire.Number = 2 // of ListVolumesResponse
	volumeField    protowire.Number = 1 // of Entry
	statusField    protowire.Number = 2 // of Entry
	volumeIDField  protowire.Number = 2 // of Volume
	nodeIDsField   protowire.Number = 1 // of VolumeStatus
)

// encodedPage is an encoded ListVolumesResponse. It is read field by field: decoded, a page of 16 MiB of empty
// entries would take 600 MiB.
type encodedPage struct{ mem.Buffer }

// pageCodec leaves an answer encoded.
type pageCodec struct{ encoding.CodecV2 }

func newPageCodec() pageCodec { return pageCodec{encoding.GetCodecV2(proto.Name)} }

// Name implements encoding.CodecV2. With a name, the content type would be another one than that of other calls.
func (pageCodec) Name() string { return "" }

// Unmarshal implements encoding.CodecV2.
func (pageCodec) Unmarshal(data mem.BufferSlice, page any) error {
	page.(*encodedPage).Buffer = data.MaterializeToBuffer(mem.DefaultBufferPool())
	return nil
}

// eachField calls f for each string or message in an encoded message, until f returns an error. value is a part of
// message.
func eachField(message []byte, f func(field protowire.Number, value []byte) error) error {
	for len(message) > 0 {
		field, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return errNoPage(n)
		}
		message = message[n:]
		if n = protowire.ConsumeFieldValue(field, kind, message); n < 0 {
			return errNoPage(n)
		}
		if kind == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(message)
			if err := f(field, value); err != nil {
				return err
			}
		}
		message = message[n:]
	}
	return nil
}

func errNoPage(n int) error {
	return status.Errorf(codes.Internal, "the driver's answer is malformed: %v", protowire.ParseError(n))
}
