package attach

import (
	"errors"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestSecretsThatADriverRepeatsAreTakenOutOfItsError(t *testing.T) {
	away := errors.New("away")
	err := errors.Join(away, status.Error(codes.Unauthenticated, "login as admin with hunter22-long failed: hunter22"))
	secrets := map[string]string{"password": "hunter22", "longer": "hunter22-long", "user": "admin"}
	got := &CallError{Method: "m", Err: redact(err, secrets)}
	if want := "away\nrpc error: code = Unauthenticated desc = login as admin with [secret] failed: [secret]"; got.Error() != want {
		t.Errorf("%q, want %q", got, want)
	}
	if status.Code(got.Err) != codes.Unauthenticated {
		t.Errorf("code %s, want that of the error", status.Code(got.Err))
	}
	if !errors.Is(got, away) {
		t.Error("the error is not what it was")
	}
	if same := redact(away, secrets); same != away {
		t.Errorf("%v: an error without a secret is another one", same)
	}
}
