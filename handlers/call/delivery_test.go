package call_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
	"github.com/caddy-modelgate/modelgate/money"
)

// slowReader is a backend that reads the body of a call only when the test allows it.
type slowReader struct {
	*httptest.Server
	reached chan struct{}         // receives when a call has arrived
	read    chan bool             // whether the body is read, or the connection is broken
	whole   chan bool             // receives whether the whole body was read
	answer  chan http.HandlerFunc // what answers
	gone    chan struct{}         // receives if the call is cancelled before its answer
}

func newSlowReader(t *testing.T) *slowReader {
	s := &slowReader{nil, make(chan struct{}, 9), make(chan bool), make(chan bool, 9), make(chan http.HandlerFunc), make(chan struct{}, 9)}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.reached <- struct{}{}
		if !<-s.read {
			panic(http.ErrAbortHandler)
		}
		n, err := io.Copy(io.Discard, r.Body)
		s.whole <- err == nil && n == r.ContentLength
		select {
		case <-r.Context().Done():
			s.gone <- struct{}{}
		case answer := <-s.answer:
			answer(w, r)
		}
	}))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	return s
}

// readWhole lets the backend read the body, which must arrive.
func (s *slowReader) readWhole(t *testing.T) {
	t.Helper()
	s.read <- true
	select {
	case whole := <-s.whole:
		if whole {
			return
		}
	case <-time.After(gatetest.Timeout):
	}
	t.Fatal("the backend did not get the whole body")
}

// TestACallerThatLeavesWhileABackendReceivesTheBody disconnects in the middle of the body. It is longer than
// what the buffers of a connection hold.
func TestACallerThatLeavesWhileABackendReceivesTheBody(t *testing.T) {
	s := newSlowReader(t)
	address := strings.TrimPrefix(s.URL, "http://")
	g := gatetest.Start(t, gatetest.Config{Global: overHTTP2, App: prices + "\nprice cancelled* {\ninput 0.001\noutput 0.01\ncontext 10000\nmax_output 1000\non_disconnect cancel\n}", Site: `
		modelgate_messages {
			@http modelgate_model priced-http* cancelled-http*
			@modelgate modelgate_model priced-modelgate* cancelled-modelgate*
			@h2c modelgate_model priced-h2c* cancelled-h2c*
			reverse_proxy @http ` + address + `
			reverse_proxy @modelgate ` + address + ` {
				transport modelgate
			}
			reverse_proxy @h2c h2c://` + address + `
		}`})
	padding := strings.Repeat(" ", 24<<20)
	for _, transport := range []string{"http", "modelgate", "h2c"} {
		for _, d := range disconnects {
			t.Run(transport+" "+d.name, func(t *testing.T) {
				key := g.NewKey(t, nil)
				g.Credit(t, key.UserID, "1.00")
				start := func(model string) {
					t.Helper()
					_, leave := d.call(t, g, messages, key.Secret, model, padding)
					within(t, gatetest.Timeout, "the call", s.reached)
					leave()
					awaitDetached(t, 1)
				}
				end := func(model, rule, usage string, cost money.Amount) {
					t.Helper()
					line := g.CallLineOf(t, model)
					if line.Text("ended") != "client_gone" || line.Text("rule") != rule || line.Text("usage") != usage || line.Text("cost") != cost.String() {
						t.Errorf("logged %v", line)
					}
					awaitDetached(t, 0)
				}
				model := modelName("priced-" + transport + t.Name())
				start(model)
				s.readWhole(t)
				s.answer <- gatetest.JSON(200, messageAnswer)
				end(model, "finish", "reported", 9+4*10)

				model = modelName("cancelled-" + transport + t.Name())
				start(model)
				s.readWhole(t)
				within(t, gatetest.Timeout, "the end of the call to the backend", s.gone)
				if line := g.CallLineOf(t, model); line.Text("rule") != "cancel" || line.Text("cost") == "0.00" {
					t.Errorf("logged %v", line)
				}
				awaitDetached(t, 0)

				model = modelName("priced-" + transport + " broken" + t.Name())
				start(model)
				s.read <- false
				end(model, "unsent", "none", 0)
				select {
				case <-s.reached:
					t.Error("the call was sent again without its caller")
				default:
				}
				g.WalletAtRest(t, key.UserID)
			})
		}
	}
	g.Verify(t)
}
