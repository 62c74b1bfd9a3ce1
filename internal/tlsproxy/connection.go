package tlsproxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// serve forwards one client to the socket until the connection or ctx ends. It refuses a
// client that has not finished the handshake when intake ends.
func (p *Proxy) serve(ctx, intake context.Context, raw net.Conn) {
	defer raw.Close()
	logger := klog.FromContext(ctx).WithValues("client", raw.RemoteAddr().String())
	conn, names, err := p.secure(intake, raw)
	p.handshakes.leave(raw)
	if err != nil {
		p.refused(logger, err)
		return
	}
	defer conn.Close()
	logger = logger.WithValues("names", names)
	select {
	case p.slots <- struct{}{}:
	default:
		p.refusals.Info(logger, "Refused a client: too many others are connected", "connections", p.options.MaxConnections)
		return
	}
	stay, askToGo := context.WithCancelCause(context.WithoutCancel(ctx))
	connected := &client{certificates: conn.ConnectionState().PeerCertificates, askToGo: askToGo}
	p.clients.Store(connected, nil)
	connected.check(p.material.Load(), time.Now()) // the files may have changed during the handshake
	defer context.AfterFunc(intake, func() { askToGo(errDraining) })()
	why, err := p.forward(ctx, stay, logger, conn)
	askToGo(nil) // releases stay
	p.clients.Delete(connected)
	<-p.slots // before the end is logged: after that line there is room for another client
	if err != nil {
		p.refusals.Info(logger, "Answered a client with Unavailable", "problem", err)
		return
	}
	logger.Info("A client is gone", "because", why)
}

// forward connects a client to the socket and passes data until the connection ends. It
// returns the reason of the end. If it cannot connect to the socket, it answers with the error
// until the client goes, and returns the error.
func (p *Proxy) forward(ctx, stay context.Context, logger klog.Logger, client net.Conn) (why string, err error) {
	target, err := p.target.open(ctx)
	if err != nil {
		answerUnavailable(stay, client, err.Error())
		return "", err
	}
	defer target.Close()
	logger.Info("A client is connected")
	return p.pass(ctx, stay, logger, client, target), nil
}

// refused logs why a client did not finish the handshake. A probe of the port connects and
// disconnects; it is logged at a higher verbosity.
func (p *Proxy) refused(logger klog.Logger, err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, context.Canceled) {
		logger.V(4).Info("A client left before the TLS handshake", "problem", err)
		return
	}
	p.refusals.Info(logger, "Refused a client in the TLS handshake", "problem", err)
}

// pass forwards frames in both directions until one side ends, both are silent for IdleTimeout,
// or ctx ends, and returns the reason. When stay ends it asks the client to go, and cuts it off
// after the grace.
func (p *Proxy) pass(ctx, stay context.Context, logger klog.Logger, client, target net.Conn) string {
	r := newRelay(client, target, func(problem, method string) {
		p.refusals.Info(logger, "Refused a call", "problem", problem, "method", fmt.Sprintf("%.*q", maxMethod, method))
	})
	var pumps sync.WaitGroup
	ended := make(chan error, 2)
	pumps.Go(func() { ended <- r.pump(clientSide) })
	pumps.Go(func() { ended <- r.pump(driverSide) })
	defer pumps.Wait()
	// Closing ends both pumps. Unless the client was cut off, all data that was read has been
	// written by then.
	defer client.Close()
	defer target.Close()
	idle := time.NewTicker(p.options.IdleTimeout)
	defer idle.Stop()
	last := r.activity.Load()
	leaving := stay.Done()
	var grace <-chan time.Time
	for {
		select {
		case why := <-ended:
			return why.Error()
		case <-leaving:
			leaving = nil
			logger.Info("Asked a client to go", "because", context.Cause(stay), "grace", p.options.Grace)
			pumps.Go(r.writers[clientSide].askToGo) // it blocks while the client does not read
			grace = time.After(p.options.Grace)
		case <-grace:
			return "the grace is over"
		case <-ctx.Done():
			return "the grace is over"
		case <-idle.C:
			now := r.activity.Load()
			if now == last {
				return "nothing was passed for too long"
			}
			last = now
		}
	}
}
