package access

import (
	"context"
	"crypto/sha256"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apimachinery/pkg/util/cache"

	"github.com/csi-attach-hub/csi-attach-hub/internal/panics"
)

const (
	// How long answers are cached: frequent scrapes cost the API server few requests, and a
	// right that is revoked is gone within a minute.
	yesTTL = time.Minute
	noTTL  = 10 * time.Second
	// againTTL is how long after a yes a question is asked again without a quota.
	againTTL = time.Hour
	// maxAnswers bounds the cached answers, those of yes and of no apart.
	maxAnswers = 1000
)

// answers caches the answers of the API server to questions of one kind: yes with a value, or no. It asks few questions at
// once, and each once for all who wait for it.
type answers[T any] struct {
	gate   *gate
	quota  *quota
	yes    *cache.LRUExpireCache // *yes[T] by hash of the question, for againTTL
	no     *cache.LRUExpireCache // by hash of the question
	asking singleflight.Group
}

type yes[T any] struct {
	value T
	until time.Time
}

func newAnswers[T any](g *gate, q *quota) *answers[T] {
	return &answers[T]{gate: g, quota: q, yes: cache.NewLRUExpireCache(maxAnswers), no: cache.NewLRUExpireCache(maxAnswers)}
}

// get returns the answer to the question of a client: the cached one, or that of ask. An error means that the answer is not known.
// ask gets a context of its own, since others may wait for the same answer.
func (a *answers[T]) get(ctx context.Context, question []byte, client string, ask func(context.Context) (T, bool, error)) (value T, ok bool, err error) {
	key := sha256.Sum256(question) // questions may be long, and tokens are secrets
	last, before := a.yes.Get(key)
	if before && time.Now().Before(last.(*yes[T]).until) {
		return last.(*yes[T]).value, true, nil
	}
	if _, refused := a.no.Get(key); refused {
		return value, false, nil
	}
	// The goroutine ends with ask.
	done := a.asking.DoChan(string(key[:]), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), checkTimeout)
		defer cancel()
		var answer *yes[T] // nil for no
		f := func() (err error) { answer, err = a.fetch(ctx, key, ask); return err }
		var err error
		if before {
			err = a.gate.askAgain(ctx, f)
		} else {
			err = a.gate.ask(ctx, a.quota, client, f)
		}
		return answer, err
	})
	select {
	case result := <-done:
		if answer := result.Val.(*yes[T]); answer != nil {
			return answer.value, true, nil
		}
		return value, false, result.Err
	case <-ctx.Done():
		return value, false, ctx.Err()
	}
}

// fetch asks, and caches the answer. It returns nil for no.
func (a *answers[T]) fetch(ctx context.Context, key [sha256.Size]byte, ask func(context.Context) (T, bool, error)) (answer *yes[T], err error) {
	var value T
	var ok bool
	if panicked := panics.Catch(func() { value, ok, err = ask(ctx) }); panicked != nil {
		return nil, panicked
	}
	switch {
	case err != nil:
		return nil, err
	case !ok:
		a.yes.Remove(key)
		a.no.Add(key, nil, noTTL)
		return nil, nil
	}
	answer = &yes[T]{value: value, until: time.Now().Add(yesTTL)}
	a.yes.Add(key, answer, againTTL)
	return answer, nil
}
