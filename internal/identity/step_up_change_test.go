package identity

import (
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// TestAStepUpEndsWhenAFactorOrThePasswordChanges checks that a step-up proves only the earlier
// factors and password.
func TestAStepUpEndsWhenAFactorOrThePasswordChanges(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(t *testing.T, f fixture, a *Account, codes []string) error{
		"new backup codes": func(t *testing.T, f fixture, a *Account, codes []string) error {
			_, renewed, err := f.RenewBackupCodes(t.Context(), a, codes[1])
			a.setSecret(renewed)
			return err
		},
		"another password": func(t *testing.T, f fixture, a *Account, _ []string) error {
			renewed, err := f.ChangePassword(t.Context(), a, goodPassword, otherPassword)
			a.setSecret(renewed)
			return err
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			f := newPeople(t)
			a := f.login(t, f.userWithPassword(t, "ann").Name).Account
			_, codes := f.withTOTP(t, a)
			expect(t, "verified", f.verify(t, a, codes[0]), "")
			expect(t, "fresh", f.Fresh(t.Context(), a), "")
			expect(t, what, change(t, f, a, codes), "")
			expect(t, "afterwards", f.Fresh(t.Context(), a), fault.VerificationRequired)
		})
	}
}
