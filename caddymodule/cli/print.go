package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/caddy-modelgate/modelgate/caddymodule"
	"github.com/caddy-modelgate/modelgate/caddymodule/adminapi"
	"github.com/caddy-modelgate/modelgate/internal/billing"
	"github.com/caddy-modelgate/modelgate/internal/identity"
	"github.com/caddy-modelgate/modelgate/internal/task"
)

// printer prints an answer as text. It separates cells by tabs.
type printer func(w *tabwriter.Writer, c *call, answer []byte) error

var errNotAdmin = errExit{exitUnreachable, errors.New("the server at this address is not Caddy's admin endpoint")}

// both prints an answer with two printers.
func both(one, two printer) printer {
	return func(w *tabwriter.Writer, c *call, answer []byte) error {
		return cmp.Or(one(w, c, answer), two(w, c, answer))
	}
}

// decoded prints an answer of type T.
func decoded[T any](print func(w *tabwriter.Writer, answer *T)) printer {
	return func(w *tabwriter.Writer, _ *call, answer []byte) error {
		var value T
		if json.Unmarshal(answer, &value) != nil {
			return errNotAdmin
		}
		print(w, &value)
		return nil
	}
}

// rows prints one T, or each T of a list, as a row below the heads.
func rows[T any](heads string, cells func(*T) []any) printer {
	return func(w *tabwriter.Writer, _ *call, answer []byte) error {
		var list struct {
			Items json.RawMessage `json:"items"`
		}
		items := make([]T, 1)
		err := json.Unmarshal(answer, &list)
		if list.Items != nil {
			err = errors.Join(err, json.Unmarshal(list.Items, &items))
		} else {
			err = errors.Join(err, json.Unmarshal(answer, &items[0]))
		}
		if err != nil {
			return errNotAdmin
		}
		fmt.Fprintln(w, heads)
		for i := range items {
			fmt.Fprintln(w, row(cells(&items[i])...))
		}
		return nil
	}
}

func row(cells ...any) string { return strings.Join(words(cells), "\t") }

// orCSV returns a printer of a report: with --csv as write does, else as table does.
func orCSV[T any](write func(io.Writer, []T) error, table printer) printer {
	return func(w *tabwriter.Writer, c *call, answer []byte) error {
		if !c.isSet("csv") {
			return table(w, c, answer)
		}
		var list adminapi.Page[T]
		if json.Unmarshal(answer, &list) != nil {
			return errNotAdmin
		}
		return write(c.OutOrStdout(), list.Items)
	}
}

// fixed prints a text that does not depend on the answer.
func fixed(format string, args ...any) printer {
	return func(w *tabwriter.Writer, _ *call, _ []byte) error {
		_, err := fmt.Fprintf(w, format, args...)
		return err
	}
}

// aboutUser prints a sentence that begins with the user of the command.
func aboutUser(text string) printer {
	return func(w *tabwriter.Writer, c *call, answer []byte) error {
		return fixed("%s %s.\n", c.args["user"], text)(w, c, answer)
	}
}

// counted returns a number with the noun in the singular or the plural.
func counted[N int | int64](n N, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

// moment returns Unix seconds as a readable time in UTC, and zero as a dash.
func moment(seconds int64) string {
	if seconds == 0 {
		return "-"
	}
	return time.Unix(seconds, 0).UTC().Format("2006-01-02 15:04:05Z")
}

func words[T any](values []T) []string {
	out := make([]string, len(values))
	for i, value := range values {
		out[i] = fmt.Sprint(value)
	}
	return out
}

// dash returns a word for a table: a dash if it is empty, and quoted if it has characters
// that are not visible. New names cannot have such characters; stored ones may.
func dash(word string) string {
	switch {
	case word == "":
		return "-"
	case !utf8.ValidString(word), strings.ContainsFunc(word, func(c rune) bool { return !unicode.IsPrint(c) }):
		return strconv.Quote(word)
	}
	return word
}

var printUsers = rows("ID\tNAME\tCREATED\tTOKEN\tFACTORS\tLIMITS\tROLE\tSTATE", func(u *adminapi.User) []any {
	state, token := "active", "-"
	if u.Disabled {
		state = "disabled"
	}
	if u.Token != nil {
		token = u.Token.Hint
	}
	var factors []string
	if u.Factors.TOTP {
		factors = append(factors, fmt.Sprintf("totp+%d", u.Factors.BackupCodes))
	}
	if u.Factors.Passkeys > 0 {
		factors = append(factors, counted(u.Factors.Passkeys, "passkey", "passkeys"))
	}
	return []any{u.ID, u.Name, moment(u.Created), token, dash(strings.Join(factors, ", ")), u.Limits, dash(string(u.Role)), state}
})

var printEvents = rows("TIME\tACTOR\tACTION\tCHANGE\tREASON\tADDRESS\tREQUEST", func(e *adminapi.Event) []any {
	actor, change := dash(e.Actor), []string{}
	if e.ActorName != "" {
		actor += " (" + dash(e.ActorName) + ")"
	}
	for _, part := range []string{e.Key, e.Detail} {
		if part != "" {
			change = append(change, dash(part))
		}
	}
	if e.Before != "" || e.After != "" {
		change = append(change, dash(e.Before)+" -> "+dash(e.After))
	}
	return []any{moment(e.Time), actor, e.Action, dash(strings.Join(change, ", ")), dash(e.Reason), dash(e.Address), dash(e.RequestID)}
})

var printKeys = rows("ID\tUSER\tNAME\tKEY\tMODELS\tFROM\tLIMITS\tEXPIRES\tSTATE", keyCells)

func keyCells(k *adminapi.Key) []any {
	// The scope of the operator, and then that of the owner.
	expires, now := identity.Key{Scope: k.Scope, Operator: k.Owner}.ExpiresAt(), time.Now().Unix()
	state := "active"
	switch {
	case k.Revoked != 0:
		state = "revoked " + moment(k.Revoked)
	case expires != 0 && expires <= now:
		state = "expired"
	case k.PreviousUntil > now:
		state = "active; previous secret until " + moment(k.PreviousUntil)
	}
	var ownLimits []string
	if k.Owner.Limits != (identity.Limits{}) {
		ownLimits = []string{k.Owner.Limits.String()}
	}
	// and adds the values of the owner to those of the operator.
	and := func(operator, owner []string) string {
		cell := cmp.Or(strings.Join(operator, ","), "all")
		if len(owner) > 0 {
			cell += " (owner: " + strings.Join(owner, ",") + ")"
		}
		return cell
	}
	return []any{
		k.ID, cmp.Or(k.UserName, k.UserID), dash(k.Name), k.Hint, and(words(k.Models), words(k.Owner.Models)),
		and(words(k.Ranges), words(k.Owner.Ranges)), and([]string{k.Limits.String()}, ownLimits), moment(expires), state,
	}
}

var printSecret = decoded(func(w *tabwriter.Writer, k *adminapi.Key) {
	fmt.Fprintf(w, "\nThe key, which is shown only once:\n\n%s\n", k.Secret)
})

func printToken(w *tabwriter.Writer, c *call, answer []byte) error {
	if c.isSet("revoke") {
		return aboutUser("has no access token now")(w, c, answer)
	}
	return decoded(func(w *tabwriter.Writer, token *adminapi.AccessToken) {
		fmt.Fprintf(w, "The access token, which is shown only once:\n\n%s\n", token.Secret)
	})(w, c, answer)
}

func printResetCode(w *tabwriter.Writer, c *call, answer []byte) error {
	return decoded(func(w *tabwriter.Writer, code *adminapi.OneTimeCode) {
		where := "sends it with the new password to POST /api/user/password/reset"
		if code.Page != "" {
			where = "enters it with the new password on the page " + code.Page + ",\nor " + where
		}
		fmt.Fprintf(w, "The code for %s, which is shown only once, is valid for 24 hours or until the next one:\n\n%s\n\nThe user %s.\n",
			c.args["user"], code.Code, where)
	})(w, c, answer)
}

var printRotation = decoded(func(w *tabwriter.Writer, done *caddymodule.KeyRotation) {
	fmt.Fprintf(w, "%s sealed with the new key.\n", counted(done.Resealed, "secret was", "secrets were"))
	switch {
	case done.KeyFile != "":
		fmt.Fprintf(w, "The new key is in %s; keep a copy of it apart from the backups of the store.\n", done.KeyFile)
	case done.Single:
		fmt.Fprintln(w, "The configuration has one master key. To change it, put a new one before it, reload, and rotate.")
	default:
		fmt.Fprintln(w, "You can now remove the keys after the first from the configuration.")
	}
})

var printWallet = rows("USER\tBALANCE\tHELD\tRESERVED\tOWED", func(a *adminapi.Wallet) []any {
	return []any{a.User, a.Balance.String() + " " + a.Currency, a.Held, a.Reserved, a.Owed}
})

var printReplayed = decoded(func(w *tabwriter.Writer, answer *struct{ Replayed bool }) {
	if answer.Replayed {
		fmt.Fprintln(w, "Nothing was changed: an earlier command had this idempotency key. This is its result.")
	}
})

var printWalletChange = rows("AMOUNT\tBALANCE\tOWED", func(c *billing.WalletChange) []any {
	return []any{c.Amount, c.Balance, c.Owed}
})

var printClearing = rows("AMOUNT\tBALANCE\tOWED\tWRITTEN OFF", func(c *billing.WalletChange) []any {
	return []any{c.Amount, c.Balance, c.Owed, c.WrittenOff}
})

// printSkip prints how to list the following lines.
func printSkip(w *tabwriter.Writer, c *call, answer []byte) error {
	return decoded(func(w *tabwriter.Writer, list *struct {
		Items []struct{}
		Total uint64
	},
	) {
		skip, _ := c.Flags().GetUint64("skip")
		if shown := skip + uint64(len(list.Items)); len(list.Items) > 0 && shown < list.Total {
			fmt.Fprintf(w, "There are more: --skip %d\n", shown)
		}
	})(w, c, answer)
}

var printPlans = rows("ID\tTITLE\tPRICE\tQUOTA\tDURATION\tRESET\tLIMIT\tON SALE", func(p *billing.Plan) []any {
	limit := "-"
	if p.PurchaseLimit > 0 {
		limit = strconv.FormatInt(p.PurchaseLimit, 10)
	}
	return []any{p.ID, p.Title, p.Price, p.Quota, p.Duration, p.QuotaReset, limit, !p.Disabled}
})

var printSubscriptions = rows("ID\tUSER\tPLAN\tSTATUS\tQUOTA\tUSED\tHELD\tENDS\tRESETS", func(s *adminapi.Subscription) []any {
	return []any{
		s.ID, cmp.Or(s.UserName, s.User), fmt.Sprintf("%d %s", s.PlanID, s.Title), s.Status,
		s.QuotaTotal, s.QuotaUsed, s.QuotaHeld, moment(s.EndTime), moment(s.NextResetTime),
	}
})

var printTasks = rows("TASK\tUSER\tMODEL\tBACKEND\tSTATUS\tPROGRESS\tSUBMITTED\tCOMPLETED\tCHARGED", func(t *adminapi.Task) []any {
	return []any{t.ID, dash(t.User), dash(t.Model), t.Backend, t.Status, t.Progress, moment(t.CreatedAt), moment(t.CompletedAt), t.Charged}
})

// printTask prints a task, one line for each property that has a value.
var printTask = decoded(func(w *tabwriter.Writer, t *adminapi.TaskDetail) {
	known := func(is bool, value string) string { // an empty value has no line
		if !is {
			return ""
		}
		return value
	}
	at := func(seconds int64) string { return known(seconds != 0, moment(seconds)) }
	job, failed, over := "", "", t.CompletedAt != 0
	if t.Ref != nil {
		job = dash(t.Ref.ID)
	}
	if t.Error != nil {
		failed = string(t.Error.Reason) + ": " + dash(t.Error.Message)
	}
	lines := [][2]string{
		{"task", t.ID}, {"status", t.State()}, {"model", dash(t.Model)}, {"user", dash(t.User) + ", key " + t.Key},
		{"backend", t.Backend}, {"delivery", string(t.Delivery)}, {"backend job", job}, {"session id", known(t.SessionID != "", dash(t.SessionID))},
		{"submitted", at(t.CreatedAt)}, {"completed", at(t.CompletedAt)}, {"last poll", at(t.Polled)},
		{"failed polls in a row", known(t.Failing > 0, strconv.Itoa(t.Failing))}, {"unknown status", known(t.UnknownStatus != "", dash(t.UnknownStatus))},
		{"copying since", at(t.CopyingSince)},
		{"next step", known(!over && t.Due != t.Deadline, at(t.Due))}, // a task that waits for a slot has none
		{"deadline", known(!over, at(t.Deadline))}, {"held", known(!over, t.Held.String())}, {"charged", known(over, t.Charged.String())},
		{"price rule", t.Rule},
		{"cost at the backend", known(t.VendorCost.Amount != "", dash(t.VendorCost.Amount+" "+t.VendorCost.Unit))}, {"failed", failed}, {"loss", t.Loss},
	}
	if t.Result != nil {
		for _, link := range t.Result.URLs {
			lines = append(lines, [2]string{"result", dash(link)})
		}
	}
	for _, line := range lines {
		if line[1] != "" {
			fmt.Fprintf(w, "%s\t%s\n", line[0], line[1])
		}
	}
	if len(t.Paid) > 0 {
		heads := "PAID FROM"
		if !over {
			heads = "HELD FROM"
		}
		fmt.Fprintf(w, "\n%s\tAMOUNT\tTIME\tTRANSFER\n", heads)
	}
	for _, p := range t.Paid {
		fmt.Fprintln(w, row(p.Account, p.Amount, moment(p.Time), p.Transfer))
	}
})

var printDeliveries = rows("ID\tTASK\tKEY\tSTATE\tATTEMPTS\tLAST\tNEXT\tANSWER\tURL", func(d *task.Callback) []any {
	if d.Trouble == "" && d.Status != 0 {
		d.Trouble = strconv.Itoa(d.Status)
	}
	return []any{d.ID, d.Task, d.Key, d.State, d.Attempts, moment(d.Last), moment(d.Next), dash(d.Trouble), dash(d.URL)}
})

var printNodes = rows("EPOCH\tNAME\tSTATE\tVERSION\tOPTIONS\tBEHIND\tSINCE\tLAST BEAT", func(n *adminapi.Node) []any {
	state := n.State
	if n.Leads {
		state += ", leads"
	}
	if n.Self {
		state += ", answers here"
	}
	return []any{n.Epoch, n.Name, state, n.Version, dash(n.Config), n.Behind, moment(n.Since), moment(n.Last)}
})

var printBackends = rows("NAME\tADAPTER\tMODELS\tRUNNING\tWAITING\tOLDEST WAITS SINCE\tSTATE", func(b *adminapi.Backend) []any {
	running, waiting := strconv.FormatInt(b.Running, 10), strconv.FormatInt(b.Waiting, 10)
	if b.MaxRunning > 0 {
		running += fmt.Sprintf(" of %d", b.MaxRunning)
	}
	if b.Deferred > 0 {
		waiting += fmt.Sprintf(", %d of them tried again later", b.Deferred)
	}
	var state []string
	if b.Drained {
		state = append(state, "drained")
	}
	if !b.Configured {
		state = append(state, "not configured")
	}
	if b.Busy {
		state = append(state, "busy")
	}
	return []any{
		b.Name, dash(b.Adapter), dash(strings.Join(words(b.Models), ",")), running, waiting, moment(b.Oldest),
		cmp.Or(strings.Join(state, ", "), "enabled"),
	}
})
