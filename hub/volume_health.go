package hub

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/csi-attach-hub/csi-attach-hub/hub/csiclient"
	"github.com/csi-attach-hub/csi-attach-hub/hub/status"
)

const (
	// healthTimeout bounds one question about the health of a volume, and the wait for the question before it.
	healthTimeout = 5 * time.Second
	// healthAge is how long an answer is given again, so that the API cannot be used to flood a driver.
	healthAge = 10 * time.Second
	// maxHealthAnswers bounds the volumes whose answers are kept.
	maxHealthAnswers = 100
	// maxHealthReason bounds the bytes of the reason of a problem, which is one word.
	maxHealthReason = 128
)

// healthQuestions are the questions about the health of a driver's volumes. There is one at a time.
type healthQuestions struct {
	turn    chan struct{}           // filled while one is asked
	answers map[string]healthAnswer // by volume handle; only for whoever has the turn
}

type healthAnswer struct {
	health status.VolumeHealth
	err    error
}

func newHealthQuestions() healthQuestions {
	return healthQuestions{turn: make(chan struct{}, 1), answers: map[string]healthAnswer{}}
}

// VolumeHealth implements status.VolumeHealthReader.
func (h *Hub) VolumeHealth(ctx context.Context, attachment string) (status.VolumeHealth, error) {
	va := h.cluster.Attachment(attachment)
	if va == nil {
		return status.VolumeHealth{}, status.ErrNoAttachment
	}
	h.mu.Lock()
	m := h.managers[va.Spec.Attacher]
	h.mu.Unlock()
	if m == nil {
		return status.VolumeHealth{}, fmt.Errorf("driver %s is not served here", va.Spec.Attacher)
	}
	handle := h.attachmentView(va, time.Now()).VolumeHandle
	if handle == "" {
		return status.VolumeHealth{}, errors.New("the volume handle is not known")
	}
	return m.volumeHealth(ctx, handle)
}

// volumeHealth asks the driver, or returns an answer that is younger than healthAge. A question goes on without the
// client that has asked it: otherwise clients that leave early could ask again and again, and no answer would be kept.
func (m *manager) volumeHealth(ctx context.Context, handle string) (status.VolumeHealth, error) {
	wait, cancel := context.WithTimeout(ctx, healthTimeout)
	defer cancel()
	select {
	case m.health.turn <- struct{}{}:
	case <-wait.Done():
		return status.VolumeHealth{}, errors.New("the driver has not answered an earlier question yet")
	}
	defer func() { <-m.health.turn }()
	now, s := time.Now(), m.get()
	for of, answer := range m.health.answers {
		if now.Sub(answer.health.Asked) >= healthAge {
			delete(m.health.answers, of)
		}
	}
	if known, ok := m.health.answers[handle]; ok {
		return known.health, known.err
	}
	switch {
	case s.session == nil || !s.up:
		return status.VolumeHealth{}, errDisconnected
	case !s.session.capabilities().GetVolumeHealth:
		return status.VolumeHealth{}, errors.New("the driver has no GET_VOLUME_HEALTH")
	case len(m.health.answers) == maxHealthAnswers:
		return status.VolumeHealth{}, fmt.Errorf("the driver was asked about %d volumes in the last %s", maxHealthAnswers, healthAge)
	}
	answer := healthAnswer{health: status.VolumeHealth{Asked: now, Problems: []status.VolumeProblem{}}}
	ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), healthTimeout)
	defer cancel()
	problems, err := s.session.VolumeHealth(ctx, handle)
	for _, p := range problems {
		answer.health.Problems = append(answer.health.Problems, status.VolumeProblem(p))
	}
	answer.err = err
	m.health.answers[handle] = answer
	return answer.health, answer.err
}

// VolumeHealth implements Session.
func (s redactedSession) VolumeHealth(ctx context.Context, handle string) ([]csiclient.VolumeHealth, error) {
	problems, err := s.Session.VolumeHealth(ctx, handle)
	for i, p := range problems {
		problems[i].Reason, problems[i].Message = s.redactor.Text(p.Reason, maxHealthReason), s.redactor.Text(p.Message, csiclient.MaxText)
	}
	return problems, s.redactor.Error(err)
}
