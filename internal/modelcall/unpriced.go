package modelcall

import (
	"cmp"
	"strings"

	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/strictjson"
)

// RefuseUnpriced refuses members that the body of a call with a price may not have. These are
// members whose effect on the price is unknown and that are not in passes, tools without a
// type on routes that need one, and members that may multiply the answers. Passes is the
// result of [PassMembers].
func (q *Request) RefuseUnpriced(body []byte, passes map[string]bool) *fault.Fault {
	for _, n := range q.notes {
		switch n.Name {
		case noteAgent:
			if q.OwnsState { // refuseState has let only background pass
				continue
			}
		case noteMultiplier:
			if count, ok := n.Int(body); ok && count == 1 || isFalse(body, n.Value) {
				continue
			}
			param := strictjson.PathOf(body, n.Start)
			return fault.At(fault.InvalidParameter, param,
				"`%s` multiplies the answers, and this route has no price for that: leave it out; allowed: `n` on /v1/chat/completions, `n` and `best_of` on /v1/completions", param)
		case noteEnvironment:
			if isClientEnvironment(body, n) {
				continue
			}
		case noteUntypedItemTool, noteUntypedTool:
			if n.Name == noteUntypedItemTool && isMCPTool(n.Raw(body)) {
				continue
			}
			param := strictjson.PathOf(body, n.Start) + ".type"
			return fault.At(fault.InvalidParameter, param, "`%s` is missing: a tool without a type has no price here; allowed: `function`, `custom`", param)
		}
		where, ok := unknownMembers[n.Name]
		if !ok || isFalse(body, n.Value) || passes[where+n.Member(body)] {
			continue
		}
		refused, known := refusedMembers[where+n.Member(body)]
		if !known || !refused.isOff(n.Raw(body)) {
			return unpricedMember(body, n, where, cmp.Or(refused.why, "is not known to the gateway and may change the price"))
		}
	}
	return nil
}

// unpricedMember returns the refusal of a member whose effect on the price is unknown, with the reason.
func unpricedMember(body []byte, n strictjson.Note, where, why string) *fault.Fault {
	param, word := strictjson.PathOf(body, n.Start), passMember
	if name := n.Member(body); param == name || strings.HasSuffix(param, "."+name) { // the path does not quote it
		word += " " + where + name
	}
	return fault.At(fault.UnpricedOption, param,
		"`%s` %s: leave it out; the operator can allow it with `%s`", param, why, word)
}

// refusedMembers are members of the SDKs whose cost no price covers: why they are refused, and which values
// change nothing.
var refusedMembers = map[string]struct {
	why   string
	isOff func(raw []byte) bool
}{
	"multi_agent": {
		"makes the vendor run any number of agents, whose cost has no bound", func(raw []byte) bool {
			var member struct {
				Enabled bool           `json:"enabled"`
				Max     strictjson.Raw `json:"max_concurrent_subagents"`
			}
			return strictjson.Decode(raw, &member) == nil && !member.Enabled
		},
	},
	"billing_policy": {
		"makes the vendor bill another account (allowed: `bill_to` \"self\")", func(raw []byte) bool {
			var member struct {
				Type   string `json:"type"`
				BillTo string `json:"bill_to"`
			}
			return strictjson.Decode(raw, &member) == nil && (member.BillTo == "" || member.BillTo == "self")
		},
	},
	"workspace_id": {"selects another workspace of the vendor's account", func([]byte) bool { return false }},
}
