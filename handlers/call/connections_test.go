package call_test

import (
	"net/http"
	"sync"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

func TestBackendConnectionsAreReused(t *testing.T) {
	const parallel = 40 // more connections than Caddy keeps by default
	g := gatetest.Start(t, gatetest.Config{Site: gatetest.Proxied})
	key := g.NewKey(t, nil)

	var mu sync.Mutex
	opened := make(map[string]bool) // by the remote address of the connection
	round := func() {
		t.Helper()
		var arrived, calls sync.WaitGroup
		arrived.Add(parallel)
		g.Backend.On("m", func(w http.ResponseWriter, r *http.Request) {
			mu.Lock()
			opened[r.RemoteAddr] = true
			mu.Unlock()
			arrived.Done()
			arrived.Wait()
			gatetest.JSON(http.StatusOK, messageAnswer)(w, r)
		})
		for range parallel {
			calls.Go(func() {
				if a := post(t, g, messages, key.Secret, "m", ""); a.Status != http.StatusOK {
					t.Errorf("%d %s", a.Status, a.Body)
				}
			})
		}
		calls.Wait()
	}
	for range 3 {
		round()
	}
	if len(opened) != parallel {
		t.Errorf("three rounds of %d parallel calls opened %d connections", parallel, len(opened))
	}
}
