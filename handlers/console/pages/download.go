package pages

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/caddy-modelgate/modelgate/internal/usage"
)

// downloadPages redirect to files of the API. Links to files go through them, so that a browser whose
// session has ended gets the log-in page and not an error of the API.
var downloadPages = []page{{path: "/download", name: "download"}}

// downloadURL returns the URL of the page that redirects to a route of the API.
func downloadURL(v *View, route string) string {
	return v.Site.Path + "/download?of=" + url.QueryEscape(route)
}

// download redirects to the file that the query names. It redirects only to routes below /api.
func (req *request) download() {
	target, err := url.Parse(req.r.URL.Query().Get("of"))
	if err != nil || target.IsAbs() || target.Host != "" || !strings.HasPrefix(target.Path, "/api/") || strings.Contains(target.Path, "..") {
		req.fail(&Fault{Status: http.StatusNotFound, Code: "NOT_FOUND", Message: req.text("error.no_page")})
		return
	}
	http.Redirect(req.w, req.r, target.RequestURI(), http.StatusSeeOther) //nolint:gosec // a route of the API here
}

// returnToReferer makes a log-in return to the page with the link to a file, and not to the file.
func (req *request) returnToReferer() {
	if from, err := url.Parse(req.r.Referer()); err == nil && from.Host == req.r.Host {
		req.view.Here = req.site.inside(from.RequestURI())
	}
}

// fileColumns are the columns of the CSV files of the administration, with the keys of their names on the
// pages. Programs rely on the columns, so they are in no language.
var fileColumns = map[string][]parameter{
	"payments": {
		{"day", "usage.day"}, {"provider", "order.provider"}, {"currency", "admin.column.currency"}, {"orders", "admin.receipts.orders"}, {"gross", "admin.receipts.gross"}, {"refunds", "admin.receipts.refunds"},
		{"disputes", "admin.receipts.disputes"}, {"restored", "admin.receipts.restored"}, {"net", "admin.receipts.net"}, {"count", "admin.column.transfers"},
	},
	"sales": {
		{"day", "usage.day"}, {"kind", "admin.sales.what"}, {"plan_id", "admin.column.plan_id"}, {"title", "subscription.plan"}, {"currency", "admin.column.currency"}, {"count", "admin.sales.count"}, {"amount", "admin.sales.amount"},
	},
	"orders": {
		{"trade_no", "order.number"}, {"created_at", "order.created"}, {"paid_at", "order.paid_at"}, {"user_id", "admin.column.user_id"}, {"user", "admin.user"}, {"provider", "order.provider"}, {"payment", "admin.order.payment"},
		{"status", "order.status"}, {"amount", "order.amount"}, {"refunded", "admin.receipts.refunds"}, {"disputed", "admin.receipts.disputes"}, {"restored", "admin.receipts.restored"}, {"net", "admin.receipts.net"}, {"currency", "admin.column.currency"},
	},
	"usage": usageColumns(),
}

// usageColumns are the columns of a report of usage. It has one for each kind of tokens.
func usageColumns() []parameter {
	columns := []parameter{
		{"day", "usage.day"}, {"user_id", "admin.column.user_id"}, {"user", "admin.user"}, {"key_id", "admin.column.key_id"}, {"key_name", "admin.usage.head_key"}, {"console_key", "admin.column.console_key"},
		{"model", "usage.model"}, {"calls", "usage.calls"},
	}
	for _, kind := range usage.KindNames() {
		columns = append(columns, parameter{kind, "tokens." + kind})
	}
	return append(columns, parameter{"cost", "usage.cost"}, parameter{"uncollected", "admin.call.uncollected"}, parameter{"tasks", "usage.tasks"})
}
