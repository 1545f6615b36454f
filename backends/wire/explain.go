package wire

import (
	"bytes"
	"cmp"
	"encoding/json"
	"strings"

	"github.com/caddy-modelgate/modelgate/backends"
)

// Codes maps a service's codes of errors and failures, in lower case, to
// reasons.
type Codes map[string]backends.Reason

// Reason returns the reason of a code, ignoring case, or fallback if the code is
// unknown.
func (c Codes) Reason(code string, fallback backends.Reason) backends.Reason {
	return cmp.Or(c[strings.ToLower(strings.TrimSpace(code))], fallback)
}

// ErrorBody is an error in the form of most services: an object with some of
// these members, or only a message.
type ErrorBody struct {
	Code    Text `json:"code"`
	Type    Text `json:"type"`
	Reason  Text `json:"reason"`
	Message Text `json:"message"`
	Param   Text `json:"param"`
}

// UnmarshalJSON implements json.Unmarshaler. It accepts an object or a string.
func (c *ErrorBody) UnmarshalJSON(raw []byte) error {
	type bare ErrorBody
	*c = ErrorBody{}
	if raw = bytes.TrimSpace(raw); len(raw) > 0 && raw[0] == '{' {
		return json.Unmarshal(raw, (*bare)(c))
	}
	return json.Unmarshal(raw, &c.Message)
}

// Explain returns a [Client.Explain] for bodies with an [ErrorBody] in the
// member "error", at the top level, or both.
func (codes Codes) Explain() func(int, []byte) Explanation {
	return func(_ int, body []byte) Explanation {
		var flat ErrorBody
		var nested struct {
			Error ErrorBody `json:"error"`
		}
		if json.Unmarshal(body, &nested) != nil || json.Unmarshal(body, &flat) != nil {
			return Explanation{}
		}
		e := nested.Error
		explanation := Explanation{
			Code:    string(cmp.Or(e.Code, flat.Code, e.Type, flat.Type)),
			Message: string(cmp.Or(e.Message, flat.Message)),
			Param:   string(cmp.Or(e.Param, flat.Param)),
		}
		for _, code := range []Text{e.Reason, e.Code, flat.Code, e.Type, flat.Type} {
			explanation.Reason = cmp.Or(explanation.Reason, codes.Reason(string(code), ""))
		}
		return explanation
	}
}
