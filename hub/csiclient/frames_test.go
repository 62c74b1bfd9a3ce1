package csiclient

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// gRPC keeps each frame until the answer is whole.
func TestAnswerInVerySmallFramesEndsTheConnection(t *testing.T) {
	t.Parallel()
	_, err := Connect(testContext(t), at(frameServer(t, 1)), nil)
	if err == nil || !strings.Contains(err.Error(), errSmallFrames.Error()) {
		t.Errorf("got %v", err)
	}
}

func TestAnswerInSmallFramesIsTaken(t *testing.T) {
	t.Parallel()
	_, err := Connect(testContext(t), at(frameServer(t, frameBytes)), nil)
	// The answer has no name in it.
	if !errors.Is(err, ErrName) {
		t.Errorf("got %v", err)
	}
}

// frameServer answers each call with 60 KiB in DATA frames of a size.
func frameServer(t *testing.T, size int) registry.Endpoint {
	t.Helper()
	const length = 60 << 10
	message := append(binary.BigEndian.AppendUint32([]byte{0}, length), field(9, make([]byte, length-4)...)...)
	return listen(t, func(conn net.Conn) {
		go func() {
			defer conn.Close()
			_ = answerInFrames(conn, message, size)
		}()
	})
}

func answerInFrames(conn net.Conn, message []byte, size int) error {
	return answerCalls(conn, func(framer *http2.Framer, stream uint32) error {
		err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, EndHeaders: true, BlockFragment: headerBlock(":status", "200", "content-type", "application/grpc")})
		for rest := message; len(rest) > 0 && err == nil; {
			part := rest[:min(size, len(rest))]
			rest = rest[len(part):]
			err = framer.WriteData(stream, false, part)
		}
		if err != nil {
			return err
		}
		return framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, EndHeaders: true, EndStream: true, BlockFragment: headerBlock("grpc-status", "0")})
	})
}

// answerCalls is a server of HTTP/2 that has an answer written for each call. It blocks until the connection ends.
func answerCalls(conn net.Conn, answer func(framer *http2.Framer, stream uint32) error) error {
	if _, err := io.CopyN(io.Discard, conn, int64(len(http2.ClientPreface))); err != nil {
		return err
	}
	framer := http2.NewFramer(conn, conn)
	if err := framer.WriteSettings(); err != nil {
		return err
	}
	for {
		frame, err := framer.ReadFrame()
		if _, isCall := frame.(*http2.HeadersFrame); err == nil && isCall {
			err = answer(framer, frame.Header().StreamID)
		}
		if err != nil {
			return err
		}
	}
}

func headerBlock(fields ...string) []byte {
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	for i := 0; i < len(fields); i += 2 {
		_ = encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}) // a Buffer takes everything
	}
	return block.Bytes()
}

func TestFramesOfManyAnswersAreNotAdded(t *testing.T) {
	var sent bytes.Buffer
	framer := http2.NewFramer(&sent, nil)
	a := newAnswerFrames()
	for stream := uint32(1); stream < 200_000; stream += 2 {
		sent.Reset()
		_ = framer.WriteData(stream, false, []byte("12345"))
		switch stream % 3 {
		case 0:
			_ = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, EndHeaders: true, EndStream: true})
		case 1:
			_ = framer.WriteRSTStream(stream, http2.ErrCodeCancel)
		case 2:
			_ = framer.WriteData(stream, true, nil)
		}
		if err := a.check(sent.Bytes()); err != nil {
			t.Fatalf("answer %d: %v", stream, err)
		}
	}
	if len(a.excess) > 0 {
		t.Errorf("%d streams are kept", len(a.excess))
	}
}

func TestPaddingAndAnswersWithoutEndDoNotGetAroundTheLimitOfFrames(t *testing.T) {
	for name, tc := range map[string]struct {
		write func(framer *http2.Framer, n int) error
		want  error
	}{
		"padding": {func(framer *http2.Framer, _ int) error {
			return framer.WriteDataPadded(1, false, []byte("1"), make([]byte, 255))
		}, errSmallFrames},
		"without end": {func(framer *http2.Framer, n int) error {
			return framer.WriteData(uint32(2*n+1), false, make([]byte, 300))
		}, errUnfinished},
	} {
		var sent bytes.Buffer
		framer := http2.NewFramer(&sent, nil)
		a := newAnswerFrames()
		var err error
		for n := 0; n <= maxUnfinished && err == nil; n++ {
			sent.Reset()
			if err := tc.write(framer, n); err != nil {
				t.Fatal(err)
			}
			err = a.check(sent.Bytes())
		}
		if !errors.Is(err, tc.want) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
