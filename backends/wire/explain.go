package wire

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strings"

	"github.com/caddy-modelgate/modelgate/backends"
)

// Codes are a service's codes for errors and failures, in lower case, with the
// reason each means.
type Codes map[string]backends.Reason

// Reason returns what a code means, in whatever case it is written, or
// otherwise if it is none of these.
func (c Codes) Reason(code string, otherwise backends.Reason) backends.Reason {
	return cmp.Or(c[strings.ToLower(strings.TrimSpace(code))], otherwise)
}

// Complaint is an error as most services write it: an object with some of
// these members, or its message alone.
type Complaint struct {
	Code    Text `json:"code"`
	Type    Text `json:"type"`
	Reason  Text `json:"reason"`
	Message Text `json:"message"`
	Param   Text `json:"param"`
}

// UnmarshalJSON implements json.Unmarshaler. What is of another form says
// nothing.
func (c *Complaint) UnmarshalJSON(raw []byte) error {
	type bare Complaint
	*c = Complaint{}
	if raw = bytes.TrimSpace(raw); len(raw) > 0 && raw[0] == '{' {
		return json.Unmarshal(raw, (*bare)(c))
	}
	return json.Unmarshal(raw, &c.Message)
}

// Explain returns how errors are read that lie in a member "error", flat in the
// body, or both.
func (codes Codes) Explain() func(int, []byte) Explanation {
	return func(_ int, body []byte) Explanation {
		var flat Complaint
		var nested struct {
			Error Complaint `json:"error"`
		}
		if json.Unmarshal(body, &nested) != nil || json.Unmarshal(body, &flat) != nil {
			return Explanation{}
		}
		e := nested.Error
		said := Explanation{
			Code:    string(cmp.Or(e.Code, flat.Code, e.Type, flat.Type)),
			Message: string(cmp.Or(e.Message, flat.Message)),
			Param:   string(cmp.Or(e.Param, flat.Param)),
		}
		for _, code := range []Text{e.Reason, e.Code, flat.Code, e.Type, flat.Type} {
			said.Reason = cmp.Or(said.Reason, codes.Reason(string(code), ""))
		}
		return said
	}
}
