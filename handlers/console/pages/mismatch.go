package pages

import "strings"

// mismatchReasons are the reasons of mismatches, as packages billing and payments word them, with the keys
// of their messages. A reason that is missing here is shown as it is.
var mismatchReasons = []struct{ format, key string }{
	{"there is no such order", "mismatch.order"},
	{"it names no order and no known payment", "mismatch.unknown"},
	{"its kind is not known to this build", "mismatch.kind"},
	{"the amount is not more than zero", "mismatch.amount"},
	{"its dispute has no id", "mismatch.dispute"},
	{"the order belongs to the service %s", "mismatch.service"},
	{"the order has expired, and the service does not sign the time", "mismatch.expired"},
	{"the order was paid by another payment, %s", "mismatch.other_payment"},
	{"the order is in %s, and the money here in %s", "mismatch.foreign"},
	{"the order is in %s", "mismatch.currency"},
	{"a notice with the same id and other content was applied to the order %s", "mismatch.content"},
	{"it has no id", "mismatch.no_id"},
	{"one of its ids is not 1 to 255 printable characters", "mismatch.bad_id"},
	{"out_trade_no names no order of this gateway", "mismatch.no_order"},
	{"pid is that of another merchant", "mismatch.merchant"},
	{"the event is of live mode, secret_key of test mode", "mismatch.live"},
	{"the event is of test mode, secret_key of live mode", "mismatch.test"},
	{"the event is of another, connected account", "mismatch.account"},
	{"the event names neither an order of this gateway nor a payment", "mismatch.nothing"},
	{"the session was not opened for an order of this gateway", "mismatch.session"},
	{"the order is for %s", "mismatch.order_amount"},
}

// mismatchReason returns the reason of a mismatch in the language of the page.
func mismatchReason(text func(key string, args ...any) string, reason string) string {
	for _, row := range mismatchReasons {
		if args, ok := scan(row.format, reason); ok {
			return text(row.key, args...)
		}
	}
	return reason
}

// scan returns the values of the verbs %s in a text that has this format.
func scan(format, text string) (args []any, ok bool) {
	parts := strings.Split(format, "%s")
	rest, ok := strings.CutPrefix(text, parts[0])
	for i, part := range parts[1:] {
		at := strings.Index(rest, part)
		if i == len(parts)-2 { // the last verb has the rest of the text
			at = len(rest) - len(part)
		}
		if !ok || at < 0 || !strings.HasPrefix(rest[at:], part) {
			return nil, false
		}
		args, rest = append(args, rest[:at]), rest[at+len(part):]
	}
	return args, ok && rest == ""
}
