package cli

import "github.com/caddy-modelgate/modelgate/internal/query"

// commands is the table of commands, by noun. All of them have the flags --json,
// --address and --yes.
var commands = []command{
	{use: "user", short: "Users", subcommands: []command{
		{
			use: "create <name>", short: "Creates a user, who can log in if a password is given",
			request: "POST /modelgate/users", edit: addPassword, print: printUsers,
			flags: []flag{
				{name: "password-file", value: "", help: "Read the password from this file: its first line", local: true},
				{name: "password-stdin", value: false, help: "Read the password from standard input: its first line", local: true},
			},
		},
		{
			use: "list", short: "Lists users by name", request: "GET /modelgate/users", paged: true, print: printUsers,
			flags: append([]flag{{name: "search", value: "", help: "Only those whose names begin so, or the one with this id", to: "q"}},
				pageFlags("The last user of the previous list; continues after it")...),
		},
		{
			use: "role <user> <role>", short: "Gives a user a role in the administration of the console: admin, support, finance, or none",
			request: "POST /modelgate/users/{user}/role", print: printUsers,
		},
		{use: "show <user>", short: "Shows a user: money, limits, factors, subscriptions, sessions, the latest calls and tasks, unsettled orders", request: "GET /modelgate/users/{user}", print: printUser},
		{
			use: "activity <user>", short: "Lists what was done to the account of a user, newest first: by whom, why and from which address",
			request: "GET /modelgate/users/{user}/activity", paged: true, print: printEvents, flags: pageFlags("Continues after the previous list; its last line shows the value"),
		},
		{
			use: "limit <user>", short: "Changes the limits of a user for all keys together; limits that are not given stay",
			request: "POST /modelgate/users/{user}/limits", flags: append(limitFlags(""), noLimits), edit: changeLimits, print: printUsers,
		},
		{
			use: "token <user>", short: "Creates the access token of a user, for programs that use the console, and shows it once; the previous one ends",
			request: "POST /modelgate/users/{user}/token", edit: revokeToken, print: printToken, flags: []flag{{name: "revoke", value: false, help: "Only end the current one", local: true}},
		},
		{use: "disable <user>", short: "Disables a user with all keys and the access token, from the next request on", request: "POST /modelgate/users/{user}/disable", print: printUsers},
		{use: "reset-password <user>", short: "Creates a one-time code by which a user sets a new password, and shows it once", request: "POST /modelgate/users/{user}/reset-password", print: printResetCode},
		{
			use: "reset-2fa <user>", short: "Removes the authenticator app, the backup codes and the passkeys of a user, and the count of failures",
			request: "DELETE /modelgate/users/{user}/factors", print: aboutUser("now has no second factor"),
			question: "Remove all second factors of {user}? The password alone is then enough to log in.",
		},
		{
			use: "unblock <user>", short: "Clears the failed attempts of a user at log-ins, codes and the password, and the count of today's changes",
			request: "POST /modelgate/users/{user}/unblock", print: aboutUser("can try again; the password and factors are unchanged"),
		},
		{use: "sign-out <user>", short: "Ends all sessions of a user; token --revoke ends the access token", request: "POST /modelgate/users/{user}/sign-out", print: aboutUser("is signed out everywhere")},
		{use: "enable <user>", short: "Enables a disabled user again", request: "POST /modelgate/users/{user}/enable", print: printUsers},
	}},
	{use: "key", short: "API keys", subcommands: []command{
		{
			use: "create <user>", short: "Creates an API key for a user and shows it once",
			request: "POST /modelgate/keys", print: both(printKeys, printSecret),
			flags: append([]flag{
				{name: "name", value: "", help: "Name of the key"},
				{name: "models", value: []string(nil), help: "Models that it may use: names, or prefixes as claude-* (default: all)", parse: notEmpty},
				{name: "ip-ranges", value: []string(nil), help: "Addresses from which it may be used, as 10.0.0.0/8 (default: all)", parse: notEmpty},
				{name: "expires", value: "", help: "When it ends: a duration as 30d, or a time as 2027-01-31T00:00:00Z (default: never)", parse: parseExpiry},
			}, limitFlags("limits.")...),
		},
		{use: "list", short: "Lists the API keys", request: "GET /modelgate/keys", print: printKeys, flags: []flag{{name: "user", value: "", help: "Only those of this user"}}},
		{use: "limit <key>", short: "Changes the limits of a key; limits that are not given stay", request: "POST /modelgate/keys/{key}/limits", flags: append(limitFlags(""), noLimits), edit: changeLimits, print: printKeys},
		{
			use: "rotate <key>", short: "Gives a key a new secret and shows it once; its id and scope stay",
			request: "POST /modelgate/keys/{key}/rotate", print: both(printKeys, printSecret),
			flags: []flag{{name: "grace", value: "0s", help: "How long the old secret remains valid, at most 30d; the secret before it ends at once", parse: parseGrace}},
		},
		{use: "revoke <key>", short: "Revokes a key permanently, from the next request on", request: "POST /modelgate/keys/{key}/revoke", question: "Revoke key {key} permanently?", print: printKeys},
	}},
	{use: "secret", short: "The master key, which seals secrets in the store", subcommands: []command{
		{
			use: "rotate", short: "Seals the secrets of the store with a new master key: a random one in the key file, or the first of the configuration",
			request: "POST /modelgate/secret/rotate", print: printRotation, question: "Change the master key? The previous key no longer opens this store.",
		},
	}},
	{use: "wallet", short: "Prepaid money", subcommands: []command{
		{use: "show <user>", short: "Shows the wallet of a user", request: "GET /modelgate/wallets/{user}", print: printWallet},
		{use: "credit <user> <amount>", short: "Adds money to the wallet of a user", request: "POST /modelgate/wallets/{user}/credit", flags: changeFlags, print: both(printReplayed, printWalletChange)},
		{use: "debit <user> <amount>", short: "Takes money from the wallet of a user, at most the available amount", request: "POST /modelgate/wallets/{user}/debit", flags: changeFlags, print: both(printReplayed, printWalletChange)},
		{
			use: "clear <user>", short: "Ends a receivable: takes it from the wallet, writes off the rest, and lets the user spend again; ledger --account receivable lists both",
			request: "POST /modelgate/wallets/{user}/clear", flags: changeFlags, print: both(printReplayed, printClearing),
		},
		{
			use: "ledger <user>", short: "Lists the entries of a wallet or another account of a user, newest first",
			request: "GET /modelgate/wallets/{user}/ledger", print: both(printLines, printSkip),
			flags: []flag{
				{name: "account", value: "wallet", help: "The account: wallet; receivable, where owed money is negative; or quota/<subscription>/<day>, the quota of the period of that day; without a day, of the current period"},
				{name: "limit", value: int64(query.DefaultLines), help: "Number of lines"},
				{name: "skip", value: uint64(0), help: "Number of newest lines to skip"},
			},
		},
		listMismatches,
	}},
	orderCommands, mismatchCommands, paymentsCommands, ledgerCommands,
	{use: "plan", short: "Plans on sale", subcommands: []command{
		{use: "list", short: "Lists the plans of the configuration", request: "GET /modelgate/plans", print: printPlans},
	}},
	{use: "subscription", short: "Subscriptions of users to plans", subcommands: []command{
		{use: "list", short: "Lists subscriptions", request: "GET /modelgate/subscriptions", print: printSubscriptions, flags: []flag{{name: "user", value: "", help: "Only those of this user"}}},
		{
			use: "grant <user> <plan>", short: "Gives a user a plan without a charge",
			request: "POST /modelgate/subscriptions", edit: numberPlan, print: both(printReplayed, printSubscriptions), flags: []flag{reasonFlag("audit log"), idempotencyKey},
		},
		{
			use: "cancel <id>", short: "Ends a subscription now; the rest of its quota is lost",
			request: "POST /modelgate/subscriptions/{id}/cancel", question: "End subscription {id} permanently?", print: printSubscriptions, flags: []flag{reasonFlag("audit log")},
		},
	}},
	{use: "usage", short: "Reports of usage and cost", subcommands: []command{
		{
			use: "report", short: "Sums up usage and cost: of calls by the UTC day of their start, of tasks by the UTC day of their charge",
			request: "GET /modelgate/usage", edit: oneForm, print: printUsage,
			flags: []flag{
				{name: "by", value: []string{"day"}, help: "Group by: day, user, key, model; several with commas", to: "group"},
				{name: "user", value: "", help: "Only of this user"},
				{name: "from", value: "", help: "First day, as 2026-11-01"},
				{name: "to", value: "", help: "Last day, as 2026-11-30"},
				{name: "csv", value: false, help: "Print comma-separated values", local: true},
			},
		},
	}},
	{use: "call", short: "Model calls that reached a backend", subcommands: []command{
		{
			use: "list", short: "Lists calls, latest first", request: "GET /modelgate/calls", paged: true, print: printCalls,
			flags: append([]flag{
				userFlag,
				{name: "key", value: "", help: "Only those by the key with this id"},
				{name: "model", value: "", help: "Only those to this model"},
				fromFlag, toFlag,
				{name: "status", value: "", help: "Only those with this status, as 200, or class, as 5xx"},
				{name: "min-cost", value: "", help: "Only those that cost at least this amount, as 0.50"},
			}, pageFlags("The last request of the previous list; continues after it")...),
		},
		{use: "show <request>", short: "Shows a call: its tokens, the calculation of its cost, the reason for the charge, and its payments", request: "GET /modelgate/calls/{request}", print: printCall},
	}},
	{use: "task", short: "Generations of images and videos", subcommands: []command{
		{
			use: "list", short: "Lists tasks, latest first", request: "GET /modelgate/tasks", paged: true, print: printTasks,
			flags: append([]flag{
				userFlag,
				{name: "status", value: "", help: "Only those that are queued, pending, in_progress, success or failed"},
			}, pageFlags("The last task of the previous list; continues after it")...),
		},
		{use: "show <task>", short: "Shows a task", request: "GET /modelgate/tasks/{task}", print: printTask},
		{use: "retry <task>", short: "Polls the backend of a task now, instead of at the next interval", request: "POST /modelgate/tasks/{task}/retry", print: printTask},
		{
			use: "cancel <task>", short: "Ends a task without a charge: at once while it waits, later if its backend confirms the cancellation",
			request: "POST /modelgate/tasks/{task}/cancel", question: "Cancel task {task} permanently?", print: printTask,
		},
		{
			use: "watch [task]", run: watchTasks,
			short: "Follows a task, or all unfinished tasks, until they end; exits with 0 if all succeeded, 1 if one failed, 4 after the timeout",
			flags: []flag{
				{name: "user", value: "", help: "Only tasks of this user"},
				{name: "timeout", value: "1h", help: "Maximum duration, as 30m; at most 72h"},
			},
		},
	}},
	{use: "callback", short: "Messages to receivers about ended tasks", subcommands: []command{
		{
			use: "deliveries <user>", short: "Lists the callbacks of a user's tasks, latest first",
			request: "GET /modelgate/callbacks", paged: true, print: printDeliveries, flags: pageFlags("The task of the last callback of the previous list; continues after it"),
		},
		{use: "redeliver <task>", short: "Sends the callback of a task again, with new attempts, for 7 days after it was delivered or failed", request: "POST /modelgate/callbacks/{task}/redeliver", print: printDeliveries},
	}},
	{use: "backend", short: "Services that generate images and videos", subcommands: []command{
		{use: "list", short: "Lists the backends and the number of their tasks", request: "GET /modelgate/backends", print: printBackends},
		{use: "check [backend]", short: "Checks whether a backend, or each configured one, would accept a task; this costs nothing", run: checkBackends},
		{use: "drain <backend>", short: "Stops new tasks of a backend, also after restarts: they wait; its running tasks continue", request: "POST /modelgate/backends/{backend}/drain", print: printBackends},
		{use: "enable <backend>", short: "Starts new tasks of a drained backend again", request: "POST /modelgate/backends/{backend}/enable", print: printBackends},
	}},
	{use: "node", short: "Gateways of a store that several share", subcommands: []command{
		{use: "list", short: "Lists the gateways of the store, those that ended within an hour included", request: "GET /modelgate/nodes", print: printNodes},
	}},
	{use: "price", short: "Prices of models", subcommands: []command{
		{
			use: "import <file>", run: importPrices,
			short: "Prints the prices of a public list, in a file, as price blocks of a Caddyfile",
			flags: []flag{
				{name: "from", value: "", help: "Form of the list: models.dev or litellm (default: decided by its content)"},
				{name: "provider", value: "", help: "Only models of this provider, as the list names it"},
				{name: "model", value: []string(nil), help: "Only models whose name or key matches this pattern, such as claude-*"},
				{name: "factor", value: "1", help: "Multiply all amounts by this number, such as 1.2"},
				{name: "diff", value: "", help: "Print only prices that differ from those of this Caddyfile, and exit with 1 if there are any"},
			},
		},
	}},
	{use: "version", short: "Shows the version, the commit and its date of this program; a running one may differ", run: showVersion},
	{use: "status", short: "Shows whether the gateway takes calls, and the state of its store", run: showStatus},
	{
		use: "verify", short: "Recalculates every balance from entries and transfers, and checks money, tasks and the records of files", run: verify,
		flags: []flag{
			{name: "backup", value: "", help: "Check this backup instead of the running gateway"},
			{name: "engine", value: "badger", help: "The storage engine to read the backup with"},
		},
	},
	{
		use: "doctor", short: "Searches for dangerous and broken settings in a configuration: the running one, or that of --config", run: examine,
		flags: []flag{
			{name: "config", value: "", help: "Configuration file to examine instead of the running configuration"},
			{name: "adapter", value: "", help: "Adapter of that file (default: caddyfile for files named Caddyfile*)"},
		},
	},
	{
		use: "backup <file>", short: "Writes a backup of the running gateway's store to a new file, or to standard output if it is -", run: backup,
		long: `Writes a backup of the running gateway's store to a new file, or to standard
output if the file is -.

It contains users, money and tasks. It does not contain the master key or the files
of results: these are in the directory .media of the store or the configured place,
for 7 days. If they are not restored, their links return 410.`,
	},
	{
		use: "restore <file> [directory]", short: "Reads a backup into a new store: a directory, or the empty store of --config; no gateway may use it",
		run: restore, flags: []flag{
			{name: "engine", value: "badger", help: "The storage engine of the directory"},
			{name: "config", value: "", help: "Configuration file whose store several machines share, instead of a directory"},
			{name: "adapter", value: "", help: "Adapter of that file (default: caddyfile for files named Caddyfile*)"},
		},
	},
	{
		use: "init [dir]", run: initialize,
		short: "Writes a Caddyfile for your backends and a file with its secrets into a directory; asks for backends if no flag names one",
		flags: []flag{
			{name: "domain", value: "http://localhost:8080", help: "Address of the site, as ai.example.com"},
			{name: "data", value: "", help: "Directory of the store (default: store in the directory)"},
			{name: "anthropic", value: false, help: "Serve models of Anthropic"},
			{name: "openai", value: false, help: "Serve models of OpenAI"},
			{name: "anthropic-url", value: "", help: "Address of another server with Anthropic's interface, as https://ai.example.com (default: that of Anthropic)"},
			{name: "vllm", value: "", help: "Address of a vLLM server, or of another server with OpenAI's interface, as 10.0.0.5:8000 or https://ai.example.com/v1"},
			{name: "vllm-models", value: []string(nil), help: "Its models"},
			{name: "ollama", value: "", help: "Address of an Ollama server, as localhost:11434"},
			{name: "ollama-models", value: []string(nil), help: "Its models"},
			{name: "tasks", value: "", help: "Address of a server of images and videos with /v1/videos, such as vLLM-Omni or SGLang"},
			{name: "tasks-models", value: []string(nil), help: "Its models, each with video- or image- before its name at the server"},
		},
	},
	{
		use: "demo", short: "Starts a complete gateway on this machine, with a demonstration backend and a key", run: runDemo,
		flags: []flag{
			{name: "listen", value: "127.0.0.1:0", help: "Address to listen at; port 0 means a free port"},
			{name: "data", value: "", help: "Directory of all files (default: a temporary one, removed at the end)"},
		},
	},
}

var (
	noLimits       = flag{name: "none", value: false, help: "Remove all limits", local: true}
	idempotencyKey = flag{name: "idempotency-key", value: "", help: "A unique word; commands with the same word take effect once"}
	changeFlags    = []flag{reasonFlag("ledger and in the audit log"), idempotencyKey}
)

// reasonFlag returns the flag for the reason of a change, which is required.
func reasonFlag(where string) flag {
	return flag{name: "reason", value: "", help: "Reason for the change, for the " + where, parse: parseReason}
}

// limitFlags returns the flags of the limits of a user or a key. The server checks their
// values.
func limitFlags(within string) []flag {
	return []flag{
		{name: "budget", value: "", help: "Maximum spend in each period of --reset, as 9.90; 0: no limit", to: within + "budget", parse: parseBudget},
		{name: "reset", value: "", help: "When the budget is reset, in UTC: never, day, week or month (default: never)", to: within + "reset", parse: parseReset},
		{name: "rps", value: int64(0), help: "Maximum number of calls that begin in a second; 0: no limit", to: within + "requests_per_second"},
		{name: "streams", value: int64(0), help: "Maximum number of streaming calls at once; 0: no limit", to: within + "streams"},
		{name: "tpm", value: int64(0), help: "Maximum number of tokens in a minute; 0: no limit", to: within + "tokens_per_minute"},
	}
}

func pageFlags(after string) []flag {
	return []flag{
		{name: "limit", value: int64(query.DefaultPage), help: "Number of lines, at most 10000", local: true},
		{name: "after", value: "", help: after, local: true},
	}
}
