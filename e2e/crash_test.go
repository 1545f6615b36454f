package e2e

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"
)

func TestACrashLosesOnlyTheLastSecondsOfALongCall(t *testing.T) {
	t.Parallel()
	const text = "ten bytes!"
	start := event("message_start", `{"type":"message_start","message":{"content":[],"usage":{"input_tokens":100,"output_tokens":1}}}`)
	piece := event("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"`+text+`"}}`)
	var events atomic.Int64 // sent pieces; the client may not have received the last ones
	b := newBackend(t, func(s *scriptWriter, a *recordedRequest) {
		s.writeHeader(http.StatusOK, "Content-Type", "text/event-stream")
		s.write(start)
		beat := time.NewTicker(20 * time.Millisecond)
		defer beat.Stop()
		for {
			select {
			case <-a.Gone:
				return
			case <-beat.C:
				events.Add(1)
				s.write(piece)
			}
		}
	})
	g := running(t, priced(b, ""), b)
	c := g.newGatewayUser("caller")
	c.credit("100.00")
	k := &scriptedCall{path: "/v1/messages", model: "m-1", maxTokens: 8000, prompt: "Tell me a story without an end."}
	req := g.request(t.Context(), k.path, k.request(), "Authorization", "Bearer "+c.key)
	transport := newTransport(http1)
	defer transport.CloseIdleConnections()
	resp, err := g.responseRecorder.over(transport).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	expect(t, resp.Body, start)

	// cost returns the price of a number of pieces.
	cost := func(pieces int) nano {
		return prices["m-1"].of(tokens{Input: 100, Output: third(int64(pieces * len(text)))})
	}
	var delivered []time.Time
	var seen used
	for seen.Cost == 0 {
		expect(t, resp.Body, piece)
		delivered = append(delivered, time.Now())
		if since := time.Since(delivered[0]); since > 12*time.Second {
			t.Fatalf("after %v no part of the call is settled", since)
		}
		if listed := c.calls(); len(listed) > 0 {
			seen = listed[0]
		}
	}
	killed := time.Now()
	g.process.kill()

	g.start()
	g.verify()
	record := c.calls()[0]
	old := 0 // delivered pieces that are old enough to be recorded
	for old < len(delivered) && killed.Sub(delivered[old]) > 10*time.Second+500*time.Millisecond {
		old++
	}
	if seen.Ended != "" || record.Ended != "crash" || record.Cost != seen.Cost || record.Tokens != seen.Tokens {
		t.Errorf("a call was listed as %+v; after the crash its record is %+v", seen, record)
	}
	if maxCost := cost(int(events.Load())); record.Cost < cost(old) || record.Cost > maxCost {
		t.Errorf("the charge is %v, want %v to %v", record.Cost, cost(old), maxCost)
	}
	if w := g.wallet("caller"); w.Balance != 100*unit-record.Cost || w.Reserved != 0 || w.Held != 0 {
		t.Errorf("the wallet is %+v after a charge of %v", w, record.Cost)
	}
	t.Logf("charged for %d of %d tokens", record.Tokens.Output, third(int64(len(delivered)*len(text))))
}

func TestACrashChargesNothingThatCannotBeMeasured(t *testing.T) {
	t.Parallel()
	const text = "ten bytes!"
	piece := event("content_block_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"`+text+`"}}`)
	b := newBackend(t, func(s *scriptWriter, a *recordedRequest) {
		s.writeHeader(http.StatusOK, "Content-Type", "text/event-stream")
		beat := time.NewTicker(100 * time.Millisecond)
		defer beat.Stop()
		for {
			select {
			case <-a.Gone:
				return
			case <-beat.C:
				s.write(piece) // without reporting the input
			}
		}
	})
	g := running(t, priced(b, ""), b)
	c := g.newGatewayUser("caller")
	c.credit("100.00")
	req := g.request(t.Context(), "/v1/messages", `{"model":"m-1","max_tokens":8000,"stream":true,"messages":[{"role":"user","content":[`+
		`{"type":"text","text":"ten bytes?"},{"type":"document","source":{"type":"base64","media_type":"application/pdf","data":"JVBERi0="}}]}]}`,
		"Authorization", "Bearer "+c.key)
	transport := newTransport(http1)
	defer transport.CloseIdleConnections()
	resp, err := g.responseRecorder.over(transport).RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var seen used
	for began := time.Now(); seen.Cost == 0; {
		expect(t, resp.Body, piece)
		if since := time.Since(began); since > 12*time.Second {
			t.Fatalf("after %v no part of the call is settled", since)
		}
		if listed := c.calls(); len(listed) > 0 {
			seen = listed[0]
		}
	}
	g.process.kill()

	g.start()
	g.verify()
	if record := c.calls()[0]; record.Ended != "crash" || record.Tokens.Input != third(int64(len("ten bytes?"))) {
		t.Errorf("the record after the crash is %+v", record)
	}
}
