package hub

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/klog/v2"

	"github.com/csi-attach-hub/csi-attach-hub/registry"
)

const (
	// A driver that is away is looked for this often: soon at first, and never so
	// rarely that its users would notice.
	connectRetryInitial = 200 * time.Millisecond
	connectRetryMax     = 2 * time.Second
	// steadySession is how long a session lasts that was worth connecting for.
	steadySession = 10 * time.Second
)

// connection keeps a driver connected for as long as it is engaged, whether it is worked
// for here or not: taking it over is to cost no dial.
type connection struct {
	desired   *desired
	condition *condition
	connect   ConnectFunc

	session atomic.Pointer[liveSession] // nil until the first one is there

	mu      sync.Mutex
	up      bool           // it can be called; guarded by mu
	since   time.Time      // of that, zero: it never could be called; guarded by mu
	changed chan struct{}  // closed at the next change; guarded by mu
	user    connectionUser // is told of changes first; nil: nobody; guarded by mu
}

// connectionUser is told when the driver can be called from now on, or not any more. It must not block.
type connectionUser interface{ connectionChanged() }

func newConnection(e *engagement, connect ConnectFunc) *connection {
	return &connection{desired: e.desired, condition: e.condition, connect: connect, changed: make(chan struct{})}
}

// isUp says whether the driver can be called, since when that is so (the zero time if it
// never could), and when it changes.
func (c *connection) isUp() (bool, time.Time, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.up, c.since, c.changed
}

// setUp notes whether the driver can be called. When it returns, who works for the
// driver knows.
func (c *connection) setUp(up bool) {
	c.mu.Lock()
	user := c.user
	if up != c.up {
		c.up, c.since = up, time.Now()
		close(c.changed)
		c.changed = make(chan struct{})
	}
	c.mu.Unlock()
	if user != nil {
		user.connectionChanged()
	}
}

// serve tells user of changes from now on, and once at the start; nil tells nobody.
func (c *connection) serve(user connectionUser) {
	c.mu.Lock()
	c.user = user
	c.mu.Unlock()
	if user != nil {
		user.connectionChanged()
	}
}

// run keeps a session to the driver until ctx ends.
func (c *connection) run(ctx context.Context) {
	defer func() {
		c.setUp(false)
		if s := c.session.Load(); s != nil {
			s.end()
		}
	}()
	var said complaint
	delay := connectRetryInitial
	for ctx.Err() == nil {
		value, _ := c.desired.get()
		s, err := c.dial(ctx, value)
		began := time.Now()
		if err == nil {
			c.use(ctx, s, value, &said)
		} else if ctx.Err() == nil && c.isReachedAs(value) {
			c.cannotConnect(ctx, value, err, &said)
		}
		if err == nil && time.Since(began) > steadySession {
			delay = connectRetryInitial
		}
		// Also after a session: one that answers and hangs up is not to be asked all the time.
		c.rest(ctx, value, delay)
		delay = min(2*delay, connectRetryMax)
	}
}

// dial connects once, and gives up when the driver is to be reached in another way.
func (c *connection) dial(ctx context.Context, value registry.Driver) (Session, error) {
	ctx, giveUp := c.desired.whileReachedAs(ctx, value)
	defer giveUp()
	return c.connect(ctx, value)
}

// rest waits, less when the driver is to be reached in another way.
func (c *connection) rest(ctx context.Context, value registry.Driver, d time.Duration) {
	ctx, stop := c.desired.whileReachedAs(ctx, value)
	defer stop()
	sleep(ctx, d)
}

// isReachedAs says whether the driver is still to be reached as value says.
func (c *connection) isReachedAs(value registry.Driver) bool {
	now, _ := c.desired.get()
	return dialled(now) == dialled(value)
}

// cannotConnect notes a failed attempt.
func (c *connection) cannotConnect(ctx context.Context, value registry.Driver, err error, said *complaint) {
	c.condition.failed(err, time.Now())
	if said.due(err.Error(), time.Now()) {
		klog.FromContext(ctx).Info("Cannot connect to the driver, will try again for ever", "endpoint", value.Endpoint, "err", err)
	}
}
