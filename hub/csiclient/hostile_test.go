package csiclient

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

// settings is an empty SETTINGS frame of HTTP/2: a server's first words.
var settings = []byte{0, 0, 0, 4, 0, 0, 0, 0, 0}

func TestGarbageOnTheSocketIsAnErrorAndNoHang(t *testing.T) {
	for name, stream := range map[string]func() io.Reader{
		"random bytes":                func() io.Reader { return rand.Reader },
		"text":                        func() io.Reader { return endless("hello\n") },
		"a web server":                func() io.Reader { return strings.NewReader("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n") },
		"nothing, and it hangs up":    func() io.Reader { return strings.NewReader("") },
		"half a frame":                func() io.Reader { return bytes.NewReader(settings[:5]) },
		"settings, then random bytes": func() io.Reader { return io.MultiReader(bytes.NewReader(settings), rand.Reader) },
		"settings, then frames of no call": func() io.Reader {
			return io.MultiReader(bytes.NewReader(settings), endless("\x00\x00\x01\x00\x00\x00\x00\x00\x09x"))
		},
		"settings, then headers without end": func() io.Reader {
			return io.MultiReader(bytes.NewReader(settings), endless("\x00\x00\x01\x01\x00\x00\x00\x00\x01\x88"))
		},
		"settings, then GOAWAY": func() io.Reader { return io.MultiReader(bytes.NewReader(settings), bytes.NewReader(goodbye)) },
		"settings, then a frame of 16 MiB": func() io.Reader {
			return io.MultiReader(bytes.NewReader(settings), bytes.NewReader([]byte("\xff\xff\xff\x00\x00\x00\x00\x00\x01")), rand.Reader)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			endpoint := listen(t, func(conn net.Conn) {
				go func() {
					defer conn.Close()
					go func() { _, _ = io.Copy(io.Discard, conn) }() // or it would wait for us to read
					garbage := stream()
					_, _ = io.Copy(conn, readerFunc(func(b []byte) (int, error) {
						time.Sleep(time.Millisecond) // it need not keep a core busy
						return garbage.Read(b)
					}))
				}()
			})
			s, err := Connect(testContext(t), at(endpoint), nil)
			if err == nil {
				t.Errorf("connected to %v", s.Info())
			} else if speaks := strings.HasPrefix(name, "settings"); !speaks && !strings.Contains(err.Error(), "does not answer as a gRPC server") {
				t.Errorf("got %v", err)
			}
		})
	}
}

var goodbye = []byte{0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}

// endless repeats a text.
func endless(text string) io.Reader {
	return readerFunc(func(b []byte) (int, error) {
		n := len(b) / len(text) * len(text)
		if n == 0 {
			return copy(b, text), nil
		}
		copy(b, bytes.Repeat([]byte(text), n/len(text)))
		return n, nil
	})
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// The dial gives up by itself: 10 seconds, on the clock of the sockets.
func TestServerThatAcceptsAndNeverAnswersIsGivenUp(t *testing.T) {
	for name, address := range map[string]func(t *testing.T) registry.Driver{
		"a socket": func(t *testing.T) registry.Driver {
			return at(listen(t, func(net.Conn) {}))
		},
		"a TLS port": func(t *testing.T) registry.Driver {
			silent, err := net.Listen("tcp", "127.0.0.1:0")
			must(t, err)
			t.Cleanup(func() { silent.Close() }) // connections wait in its queue, accepted by nobody but the kernel
			return secured(registry.Endpoint("tcp://"+silent.Addr().String()), newParties(t).files)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx := testContext(t)
			_, err := Connect(ctx, address(t), nil)
			if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
				t.Errorf("got %v, want that time was up before the test's", err)
			}
		})
	}
}

// rawServer is a driver that answers a method with bytes of the test's own.
func rawServer(t *testing.T, answers map[string][]byte, more ...grpc.ServerOption) registry.Endpoint {
	t.Helper()
	good := map[string]proto.Message{
		"Probe":                 &csi.ProbeResponse{},
		"GetPluginInfo":         &csi.GetPluginInfoResponse{Name: driverName},
		"GetPluginCapabilities": &csi.GetPluginCapabilitiesResponse{},
	}
	endpoint := socket(t)
	listener, err := net.Listen(endpoint.Network(), endpoint.Address())
	must(t, err)
	server := grpc.NewServer(append(more, grpc.ForceServerCodec(rawCodec{}), grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		full, _ := grpc.MethodFromServerStream(stream)
		method := full[strings.LastIndexByte(full, '/')+1:]
		var request []byte
		if err := stream.RecvMsg(&request); err != nil {
			return err
		}
		answer, ok := answers[method]
		if !ok {
			answer, _ = proto.Marshal(good[method])
		}
		return stream.SendMsg(&answer)
	}))...)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() { server.Stop(); <-served })
	return endpoint
}

// rawCodec sends bytes as they are.
type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error)      { return *v.(*[]byte), nil }
func (rawCodec) Unmarshal(data []byte, v any) error { *v.(*[]byte) = bytes.Clone(data); return nil }
func (rawCodec) Name() string                       { return "proto" }

// field is one field of a message, in bytes.
func field(number protowire.Number, value ...byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), value)
}

func number(number protowire.Number, value uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.VarintType), value)
}

func join(parts ...[]byte) []byte { return bytes.Join(parts, nil) }

func TestOddAnswersAboutCapabilitiesAreTakenForWhatTheySay(t *testing.T) {
	controllerService := field(1, field(1, number(1, 1)...)...)
	for _, tc := range []struct {
		name               string
		plugin, controller []byte
		want               Capabilities
	}{
		{"an empty answer", nil, nil, Capabilities{}},
		{"capabilities without anything inside", join(field(1), field(1, field(1)...), controllerService), join(field(1), field(1, field(1)...), field(1, field(1, number(1, 2)...)...)),
			Capabilities{ControllerService: true, PublishUnpublish: true}},
		{"capabilities of a later spec", join(field(1, field(9, 'x')...), field(1, field(1, number(1, 99)...)...), controllerService),
			join(field(1, field(1, number(1, 99)...)...), field(1, field(7)...), field(1, field(1, number(1, 1<<62)...)...)), Capabilities{ControllerService: true}},
		{"the same many times", bytes.Repeat(controllerService, 10000), bytes.Repeat(field(1, field(1, number(1, 2)...)...), 10000), Capabilities{ControllerService: true, PublishUnpublish: true}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx := testContext(t)
			s := connect(ctx, t, rawServer(t, map[string][]byte{"GetPluginCapabilities": tc.plugin, "ControllerGetCapabilities": tc.controller}))
			if got := s.Info().Capabilities; got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestAnswersThatAreNoMessagesAreErrorsOfTheCall(t *testing.T) {
	noUTF8 := field(1, 0xff, 0xfe)
	for method, answer := range map[string][]byte{
		"Probe":                 {0xff},
		"GetPluginInfo":         noUTF8,
		"GetPluginCapabilities": {0x0a, 0x7f},
	} {
		_, err := Connect(testContext(t), at(rawServer(t, map[string][]byte{method: answer})), nil)
		if status.Code(err) != codes.Internal {
			t.Errorf("%s: got %v", method, err)
		}
	}
	ctx := testContext(t)
	s := connect(ctx, t, rawServer(t, map[string][]byte{
		"ControllerPublishVolume": field(1, join(field(1, 'k'), field(2, 0xff))...), // a publish context that is no UTF-8
		"ListVolumes":             {0x0a},
	}))
	if _, err := s.ControllerPublishVolume(ctx, publishRequest("v")); status.Code(err) != codes.Internal {
		t.Errorf("a publish context that is no UTF-8: got %v", err)
	}
	if _, _, err := s.ListVolumes(ctx, 0); status.Code(err) != codes.Internal {
		t.Errorf("half an answer: got %v", err)
	}
	if err := s.Probe(ctx); err != nil {
		t.Errorf("the session does not go on after that: %v", err)
	}
}

// Whatever the pages hold, a listing ends, has what they say, and nothing twice.
func FuzzListing(f *testing.F) {
	for _, p := range []*csi.ListVolumesResponse{
		page(""), page("a", listed("v", "n1", "n1"), withoutStatus("v")), page("a", nil, listed("", "n")), page("b", listed("w", "n2")),
	} {
		data, err := proto.Marshal(p)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, data)
	}
	f.Fuzz(func(t *testing.T, first, second []byte) {
		l := listing{published: Published{}, tokens: map[string]bool{}}
		said := map[[2]string]bool{}
		for n, data := range [][]byte{first, second, first} {
			var p csi.ListVolumesResponse
			if proto.Unmarshal(data, &p) != nil {
				return // the call has failed
			}
			for _, e := range p.GetEntries() {
				for _, id := range e.GetStatus().GetPublishedNodeIds() {
					said[[2]string{e.GetVolume().GetVolumeId(), id}] = true
				}
			}
			if _, err := l.take(data); err != nil {
				if n == 2 || errors.Is(err, errRepeated) {
					return
				}
				t.Fatalf("page %d: %v", n, err)
			}
			if p.GetNextToken() == "" {
				break
			}
		}
		l.compact()
		for handle, nodes := range l.published {
			seen := map[string]bool{}
			for _, id := range nodes.IDs {
				if seen[id] || !said[[2]string{handle, id}] || handle == "" {
					t.Errorf("volume %q on node %q: twice, or nobody said so", handle, id)
				}
				seen[id] = true
			}
		}
		for s := range said {
			if s[0] != "" && !l.published[s[0]].Has(s[1]) {
				t.Errorf("volume %q on node %q was listed and is not there", s[0], s[1])
			}
		}
	})
}
