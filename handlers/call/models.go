package call

import (
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-modelgate/modelgate/handlers/reply"
	"github.com/caddy-modelgate/modelgate/internal/dialect"
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/identity"
)

const modelsPath = "/v1/models"

// serveModels writes the list of models that the key may use, or one of them. The dialect is
// anthropic if the request has the version header, and openai otherwise.
func (b *block) serveModels(w http.ResponseWriter, r *http.Request, p *identity.Principal, requestID string) *fault.Fault {
	d := reply.DialectOf(r, b.app.VersionHeader)
	offered, since := b.app.Offered()
	shape := completionsModel
	if d == dialect.Anthropic {
		shape = messagesModel
	}

	var answer any
	if id, one := strings.CutPrefix(r.URL.EscapedPath(), modelsPath+"/"); one {
		name, err := url.PathUnescape(id)
		if err != nil || !p.MayUse(b.app.Resolve(name)) || !slices.Contains(offered, name) {
			return fault.At(fault.ModelNotFound, "model", "there is no model of this name for your key")
		}
		answer = shape(name, since)
	} else {
		list := []any{}
		var names []string
		for _, name := range offered {
			if p.MayUse(b.app.Resolve(name)) {
				list = append(list, shape(name, since))
				names = append(names, name)
			}
		}
		answer = completionsList{"list", list}
		if d == dialect.Anthropic {
			answer = newMessagesList(list, names)
		}
	}
	writeJSON(w, d, requestID, answer)
	return nil
}

type completionsList struct {
	Object string `json:"object"`
	Data   []any  `json:"data"`
}

func completionsModel(name string, since int64) any {
	return struct {
		ID      string `json:"id"`
		Object  string `json:"object"`
		Created int64  `json:"created"`
		OwnedBy string `json:"owned_by"`
	}{name, "model", since, "modelgate"}
}

func messagesModel(name string, since int64) any {
	return struct {
		Type        string `json:"type"`
		ID          string `json:"id"`
		DisplayName string `json:"display_name"`
		CreatedAt   string `json:"created_at"`
	}{"model", name, name, time.Unix(since, 0).UTC().Format(time.RFC3339)}
}

type messagesList struct {
	Data    []any   `json:"data"`
	HasMore bool    `json:"has_more"`
	FirstID *string `json:"first_id"`
	LastID  *string `json:"last_id"`
}

func newMessagesList(data []any, names []string) messagesList {
	list := messagesList{Data: data}
	if len(names) > 0 {
		list.FirstID, list.LastID = &names[0], &names[len(names)-1]
	}
	return list
}

func writeJSON(w http.ResponseWriter, d dialect.Dialect, requestID string, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		panic("call: " + err.Error()) // the shapes above cannot fail to marshal
	}
	header := w.Header()
	dialect.Stamp(header, d, requestID)
	header.Set("Content-Type", "application/json")
	header.Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body)
}
