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
	streamLength = flag.Duration("stream.length", 20*time.Second, "duration of a stream during reloads")
	killRounds   = flag.Int("kill.rounds", 12, "number of kills of the process during payments; a third more during tasks, a third during other writes")
	sumCalls     = flag.Int("sum.calls", 2000, "number of random calls that are compared with the ledger and the log")
	seed         = flag.Uint64("seed", 0, "seed of random choices; zero: a random seed")
)

// waitLimit is the longest time to wait for anything that should happen at
// once. It only matters to failing tests.
const waitLimit = 20 * time.Second

// newCallGenerator returns a callGenerator and logs its seed.
func newCallGenerator(t *testing.T) callGenerator {
	t.Helper()
	from := *seed
	if from == 0 {
		from = rand.Uint64()
	}
	t.Logf("-seed %d", from)
	return callGenerator{rand.New(rand.NewPCG(from, 0))}
}

// asCaddy is the environment variable that makes this binary run as Caddy, as
// cmd/caddy builds it, with the same arguments.
const asCaddy = "MODELGATE_E2E_AS_CADDY"

func TestMain(m *testing.M) {
	if os.Getenv(asCaddy) != "" {
		caddycmd.Main()
		return
	}
	// The tests mostly wait, so more of them than processors run concurrently,
	// unless the flag is set.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
