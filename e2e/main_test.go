package e2e

import (
	"flag"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"

	_ "github.com/caddy-modelgate/modelgate"
	_ "github.com/caddyserver/caddy/v2/modules/standard"
)

var (
	streamLength = flag.Duration("stream.length", 20*time.Second, "for how long a stream lives through reloads")
	killRounds   = flag.Int("kill.rounds", 12, "how often the process is killed while money moves; a third more often among tasks, a third as often under other writes")
	seed         = flag.Uint64("seed", 0, "what chance is drawn from; zero: it is drawn itself")
)

// patience is how long anything may take that should happen at once. It is
// generous, because it only ends tests that fail.
const patience = 20 * time.Second

// imagine returns an imagination, and notes how to have the same one again.
func imagine(t *testing.T) imagination {
	t.Helper()
	from := *seed
	if from == 0 {
		from = rand.Uint64()
	}
	t.Logf("-seed %d", from)
	return imagination{rand.New(rand.NewPCG(from, 0))}
}

// asCaddy, set in the environment, makes this binary Caddy: the one that
// cmd/caddy builds, with the same arguments.
const asCaddy = "MODELGATE_E2E_AS_CADDY"

func TestMain(m *testing.M) {
	if os.Getenv(asCaddy) != "" {
		caddycmd.Main()
		return
	}
	// The tests wait more than they work. Whoever gives the flag is obeyed.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
