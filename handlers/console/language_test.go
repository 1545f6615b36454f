package console_test

import (
	"fmt"
	"strings"
	"testing"
)

func TestMessagesAreInTheLanguageOfTheRequest(t *testing.T) {
	g := start(t)
	for language, want := range map[string]string{
		"":                          "the user name or the password is wrong",
		"en":                        "the user name or the password is wrong",
		"zh":                        "用户名或密码错误",
		"zh-CN,zh;q=0.9,en;q=0.8":   "用户名或密码错误",
		"zh-Hant-TW, en;q=0.5":      "用户名或密码错误",
		"en-GB,en;q=0.9,zh;q=0.5":   "the user name or the password is wrong",
		"zh;q=0.1,en;q=0.2":         "the user name or the password is wrong",
		"fr, zh;q=0.4":              "用户名或密码错误",
		"fr":                        "the user name or the password is wrong",
		"zh;q=0":                    "the user name or the password is wrong",
		strings.Repeat("zh,", 1000): "the user name or the password is wrong",
		strings.Repeat("-", 1000):   "the user name or the password is wrong",
		";;,q=zh":                   "the user name or the password is wrong",
	} {
		_, e := open(t, g.Do(t, "POST", "/api/user/login", "Content-Type: application/json\nAccept-Language: "+language, credentials(fmt.Sprintf("nobody-%d", len(language)), password)))
		if e.Message != want || e.Code != "NOT_LOGGED_IN" {
			t.Errorf("%q: %+v, want %s", language, e, want)
		}
	}
	for path, want := range map[string]string{
		"/api/nothing":    "此路径不存在",
		"/api/user/self":  "未登录：请登录",
		"/api/paypal/x/y": "此路径不存在",
		"/api/user/login": "/api/user/login 只接受 POST",
	} {
		_, e := open(t, g.Do(t, "GET", path, "Accept-Language: zh-CN", ""))
		if e.Success || !strings.HasPrefix(e.Message, want) {
			t.Errorf("%s: %+v, want %s", path, e, want)
		}
	}
	if got := g.Do(t, "GET", "/v1/nothing", "Accept-Language: zh-CN", ""); !strings.Contains(got.Body, "there is nothing at this path") {
		t.Errorf("another dialect: %s", got.Body)
	}
}

// If a fault has no complete message in Chinese, its message names the field.
func TestAMessageIsNotMixedOfTwoLanguages(t *testing.T) {
	g := start(t)
	a := newAccount(t, g)
	ask := func(method, path, body string) string {
		headers := a.auth + "\nAccept-Language: zh"
		if body != "" {
			headers += "\nContent-Type: application/json"
		}
		_, e := open(t, g.Do(t, method, path, headers, body))
		return e.Message
	}
	for body, want := range map[string]string{
		`{"plan_id":"1","idempotency_key":"x"}`: "参数无效：plan_id",
		`{"plan_id":1}`:                         "缺少 idempotency_key：请使用 UUID 等唯一值，以免重复执行",
		`{"plan_id":0,"idempotency_key":"x"}`:   "plan_id 必须大于 0，收到 0",
		`{"plan_id":99,"idempotency_key":"x"}`:  "套餐 99 不存在",
		`{`:                                     "请求体不是有效的 JSON",
		`{"plan_id":1,"idempotency_key":"验证成功","验证成功":1}`: "提交的内容不被接受",
	} {
		if got := ask("POST", "/api/subscription/wallet/pay", body); got != want {
			t.Errorf("%s: %q, want %q", body, got, want)
		}
	}
	if got := ask("POST", "/api/verify", `{"method":"2fa","code":"123456"}`); got != "此账户没有设置第二因素" && got != "此账户没有设置验证器应用" {
		t.Errorf("/api/verify: %q", got)
	}
}
