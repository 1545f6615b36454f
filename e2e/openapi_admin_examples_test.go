package e2e

import (
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-modelgate/modelgate/internal/gatetest"
)

// administration sends the examples of the administration, by the administrator of the set-up. They
// act on the user of the other examples.
func (c *exampleClient) administration(t *testing.T) {
	app, admin := c.g.Enrol(t, c.g.Login(t, "root", gatetest.Password))
	_, admin = c.g.Post(t, admin, "/api/verify", strings.Replace(app.Code(t), "{", `{"method":"2fa",`, 1))
	do := func(ids ...string) {
		for _, id := range ids {
			c.do(t, id, exampleRequest{header: admin})
		}
	}
	user := c.real["usr_4mXq0Zt9RkLw2Hsd"]
	c.do(t, "getVerification", exampleRequest{header: admin})
	do("verifyStore", "getVerification", "getGatewayStatus", "findAny", "listUsers", "getUser", "changeUserLimits", "getUser", "setRole")
	c.g.MustAdmin(t, http.MethodPost, "/modelgate/users/"+user+"/role", map[string]any{"role": "none"}, nil)

	// Money. Nothing is available when the payment is refunded, so the user owes it. An image of an
	// earlier example may still hold its price.
	do("listAllPlans", "grantPlan", "listUserSubscriptions", "creditWallet", "debitWallet", "listUserLedger", "listAllOrders")
	order := c.data(t, "getAnyOrder", exampleRequest{header: admin})
	payment, _ := order["payment"].(string)
	transfers, _ := order["transfers"].([]any)
	c.real["326bb339f3524fc87554d203b8478021"], _ = transfers[0].(object)["transfer_id"].(string)
	do("getTransfer")
	wallet := c.g.WalletAtRest(t, user)
	c.g.MustAdmin(t, http.MethodPost, "/modelgate/wallets/"+user+"/debit", map[string]any{"amount": wallet.Balance - wallet.Held, "reason": "test"}, nil)
	body := c.replaced(`{"id":"notice_03","type":"refunded","data":{"trade_no":"4mXq0Zt9RkLw2Hsd4mXq0Zt9RkLw2Hsd","payment":"` + payment + `","amount":"20.00","currency":"USD"}}`)
	if answer := c.g.Do(t, http.MethodPost, "/api/user/demo/webhook", c.signed("Content-Type: application/json\nWebhook-Id: notice_03", body), body); answer.Status != http.StatusOK {
		t.Fatalf("the refund is answered %d %s", answer.Status, answer.Body)
	}
	do("getAnyOrder", "getWallet", "clearReceivable", "listUserLedger", "cancelSubscription")
	mismatches, _ := c.data(t, "listMismatches", exampleRequest{header: admin})["items"].([]any)
	c.real["mismatch_01"], _ = mismatches[0].(object)["id"].(string)
	do("resolveMismatch", "listMismatches", "reportPayments", "reportSales", "reportUsage", "exportLedger", "listAllCalls", "getAnyCall")
	c.do(t, "reportUsage", exampleRequest{header: admin, query: "group=day&group=user&group=key&group=model"})
	c.do(t, "reportPayments", exampleRequest{header: admin, query: "group=day&group=provider"})
	c.do(t, "getAnyOrder", exampleRequest{header: admin, path: map[string]string{"order": "none"}, invalid: true, status: http.StatusNotFound})

	// Tasks.
	do("listUserCallbacks", "redeliverUserCallback", "getAnyTask", "listBackends", "checkBackend", "drainBackend", "enableBackend")
	c.g.Credit(t, user, "50.00")
	key := c.g.NewKey(t, map[string]any{"user": user})
	c.real["key_4mXq0Zt9RkLw2Hsd"] = key.ID
	_, task := c.do(t, "submitVideo", exampleRequest{header: "Authorization: Bearer " + key.Secret, example: "text"})
	c.real["task_01"], _ = task["task_id"].(string)
	do("retryTask", "cancelAnyTask", "getAnyTask", "listAllTasks")

	do("changeKeyLimits", "listUserKeys", "removeKeyLimits", "revokeUserKey", "removeUserLimits", "listUserActivity")
	c.g.MustAdmin(t, http.MethodPost, "/modelgate/users/"+user+"/token", nil, nil)
	do("endUserToken", "unblockUser", "issueResetCode", "resetFactors", "signOutUser", "disableUser", "enableUser")
}
