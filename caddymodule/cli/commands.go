package cli

import "github.com/caddy-modelgate/modelgate/internal/query"

// commands is the table of commands, by their nouns. The flags --json, --address and
// --yes go with all of them.
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
		{use: "list", short: "Lists the users", request: "GET /modelgate/users", print: printUsers},
		{use: "show <user>", short: "Shows a user: money, limits, factors, subscriptions, sessions, the latest calls and tasks, unsettled orders", request: "GET /modelgate/users/{user}", print: printUser},
		{
			use: "limit <user>", short: "Limits what a user may take with all keys together; what is not given stays as it is",
			request: "POST /modelgate/users/{user}/limits", flags: append(limitFlags(""), noLimits), edit: changeLimits, print: printUsers,
		},
		{
			use: "token <user>", short: "Makes the access token of a user, for programs that use the console, and shows it, this once; the one before ends",
			request: "POST /modelgate/users/{user}/token", edit: revokeToken, print: printToken, flags: []flag{{name: "revoke", value: false, help: "Only end the one there is", local: true}},
		},
		{use: "disable <user>", short: "Shuts a user out, with all keys and the access token, from the next request on", request: "POST /modelgate/users/{user}/disable", print: printUsers},
		{use: "reset-password <user>", short: "Makes a one-time code by which a user sets a new password, and shows it, this once", request: "POST /modelgate/users/{user}/reset-password", print: printResetCode},
		{
			use: "reset-2fa <user>", short: "Removes the authenticator app, the backup codes and the passkeys of a user, and the count of failures",
			request: "DELETE /modelgate/users/{user}/factors", print: says("user", "has no second factor now"),
			question: "Remove all second factors of {user}? The password alone is then enough to log in.",
		},
		{
			use: "unblock <user>", short: "Clears the counts of a user that delay log-ins, codes and the password, and the count of today's changes",
			request: "POST /modelgate/users/{user}/unblock", print: says("user", "may try again; a password and factors stay as they are"),
		},
		{use: "sign-out <user>", short: "Ends all sessions of a user; an access token is ended by token --revoke", request: "POST /modelgate/users/{user}/sign-out", print: says("user", "is signed out everywhere")},
		{use: "enable <user>", short: "Lets a disabled user in again", request: "POST /modelgate/users/{user}/enable", print: printUsers},
	}},
	{use: "key", short: "API keys", subcommands: []command{
		{
			use: "create <user>", short: "Creates an API key for a user and shows it, this once",
			request: "POST /modelgate/keys", print: both(printKeys, printSecret),
			flags: append([]flag{
				{name: "name", value: "", help: "What the key is for"},
				{name: "models", value: []string(nil), help: "Models it may use: names, or prefixes as claude-* (default: all)", parse: notEmpty},
				{name: "ip-ranges", value: []string(nil), help: "Addresses it may be used from, as 10.0.0.0/8 (default: all)", parse: notEmpty},
				{name: "expires", value: "", help: "When it ends: a duration as 30d, or a time as 2027-01-31T00:00:00Z (default: never)", parse: parseExpiry},
			}, limitFlags("limits.")...),
		},
		{use: "list", short: "Lists the API keys", request: "GET /modelgate/keys", print: printKeys, flags: []flag{{name: "user", value: "", help: "Only those of this user"}}},
		{use: "limit <key>", short: "Limits what a key may take; what is not given stays as it is", request: "POST /modelgate/keys/{key}/limits", flags: append(limitFlags(""), noLimits), edit: changeLimits, print: printKeys},
		{
			use: "rotate <key>", short: "Gives a key a new secret and shows it, this once; id and scope stay",
			request: "POST /modelgate/keys/{key}/rotate", print: both(printKeys, printSecret),
			flags: []flag{{name: "grace", value: "0s", help: "How long the old secret goes on working, at most 30d; one from a rotation before ends at once", parse: parseGrace}},
		},
		{use: "revoke <key>", short: "Ends a key for good, from the next request on", request: "POST /modelgate/keys/{key}/revoke", question: "Revoke key {key} for good?", print: printKeys},
	}},
	{use: "secret", short: "The master key, by which secrets in the store are sealed", subcommands: []command{
		{
			use: "rotate", short: "Seals the secrets of the store by a new master key: one that is drawn into the key file, or the first of the configuration",
			request: "POST /modelgate/secret/rotate", print: printRotation, question: "Change the master key? A copy of the one before no longer opens this store.",
		},
	}},
	{use: "wallet", short: "Prepaid money", subcommands: []command{
		{use: "show <user>", short: "Shows what a user has", request: "GET /modelgate/wallets/{user}", print: printWallet},
		{use: "credit <user> <amount>", short: "Gives a user money", request: "POST /modelgate/wallets/{user}/credit", flags: changeFlags, print: both(printReplayed, printWalletChange)},
		{use: "debit <user> <amount>", short: "Takes money from a user; never more than is available", request: "POST /modelgate/wallets/{user}/debit", flags: changeFlags, print: both(printReplayed, printWalletChange)},
		{
			use: "clear <user>", short: "Ends a receivable: takes what the wallet has of it, writes off the rest, and lets the user spend again; both stand in ledger --account receivable",
			request: "POST /modelgate/wallets/{user}/clear", flags: changeFlags, print: both(printReplayed, printClearing),
		},
		{
			use: "ledger <user>", short: "Lists what has moved in a wallet, or in another account of a user, newest first",
			request: "GET /modelgate/wallets/{user}/ledger", print: both(printLines, printSkip),
			flags: []flag{
				{name: "account", value: "wallet", help: "Which: wallet; receivable, below zero by what is owed; or quota/<subscription>/<day>, the quota of the period of that day; without a day, of the present period"},
				{name: "limit", value: int64(query.DefaultLines), help: "How many lines"},
				{name: "skip", value: uint64(0), help: "How many of the newest lines to leave out"},
			},
		},
		listMismatches,
	}},
	orderCommands, mismatchCommands, paymentsCommands, ledgerCommands,
	{use: "plan", short: "Plans on sale", subcommands: []command{
		{use: "list", short: "Lists the plans of the configuration", request: "GET /modelgate/plans", print: printPlans},
	}},
	{use: "subscription", short: "Plans that users have", subcommands: []command{
		{use: "list", short: "Lists subscriptions", request: "GET /modelgate/subscriptions", print: printSubscriptions, flags: []flag{{name: "user", value: "", help: "Only those of this user"}}},
		{
			use: "grant <user> <plan>", short: "Gives a user a plan without a charge",
			request: "POST /modelgate/subscriptions", edit: numberPlan, print: both(printReplayed, printSubscriptions), flags: []flag{reasonFlag("audit log"), idempotencyKey},
		},
		{
			use: "cancel <id>", short: "Ends a subscription now; what is left of its quota is lost",
			request: "POST /modelgate/subscriptions/{id}/cancel", question: "End subscription {id} for good?", print: printSubscriptions, flags: []flag{reasonFlag("audit log")},
		},
	}},
	{use: "usage", short: "Reports of usage and cost", subcommands: []command{
		{
			use: "report", short: "Adds up usage and cost: of calls by the UTC day of their start, of tasks by the UTC day of their charge",
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
				{name: "status", value: "", help: "Only those that were answered with this status, as 200, or class, as 5xx"},
				{name: "min-cost", value: "", help: "Only those that cost at least this, as 0.50"},
			}, pageFlags("The last request of the list before: goes on behind it")...),
		},
		{use: "show <request>", short: "Shows a call: its tokens, how its cost came about, why it was charged so, and what paid for it", request: "GET /modelgate/calls/{request}", print: printCall},
	}},
	{use: "task", short: "Images and videos that are generated", subcommands: []command{
		{
			use: "list", short: "Lists tasks, latest first", request: "GET /modelgate/tasks", paged: true, print: printTasks,
			flags: append([]flag{
				userFlag,
				{name: "status", value: "", help: "Only those that are queued, pending, in_progress, success or failed"},
			}, pageFlags("The last task of the list before: goes on behind it")...),
		},
		{use: "show <task>", short: "Shows a task", request: "GET /modelgate/tasks/{task}", print: printTask},
		{use: "retry <task>", short: "Has a backend asked now for a task that it has, however long it was to wait", request: "POST /modelgate/tasks/{task}/retry", print: printTask},
		{
			use: "cancel <task>", short: "Ends a task without a charge: at once while it waits, later if its backend confirms that it makes nothing",
			request: "POST /modelgate/tasks/{task}/cancel", question: "Cancel task {task} for good?", print: printTask,
		},
		{
			use: "watch [task]", run: watchTasks,
			short: "Follows a task, or all that are unfinished now, until they are over: ends with 0 if all succeeded, 1 if one failed, 4 if time was over before",
			flags: []flag{
				{name: "user", value: "", help: "Only tasks of this user"},
				{name: "timeout", value: "1h", help: "How long at most, as 30m; at most 72h"},
			},
		},
	}},
	{use: "callback", short: "What receivers are told of tasks that are over", subcommands: []command{
		{
			use: "deliveries <user>", short: "Lists the callbacks of a user's tasks, latest first",
			request: "GET /modelgate/callbacks", paged: true, print: printDeliveries, flags: pageFlags("The task of the last callback of the list before: goes on behind it"),
		},
		{use: "redeliver <task>", short: "Sends the callback of a task again, in a new round of attempts; for 7 days after it was delivered or given up", request: "POST /modelgate/callbacks/{task}/redeliver", print: printDeliveries},
	}},
	{use: "backend", short: "Services that generate images and videos", subcommands: []command{
		{use: "list", short: "Lists the backends, and what they have to do", request: "GET /modelgate/backends", print: printBackends},
		{use: "check [backend]", short: "Asks a backend, or each that is configured, whether it would take a task; this costs nothing", run: checkBackends},
		{use: "drain <backend>", short: "Gives a backend no more tasks, over restarts too: they wait; those that it has run on", request: "POST /modelgate/backends/{backend}/drain", print: printBackends},
		{use: "enable <backend>", short: "Gives a drained backend tasks again", request: "POST /modelgate/backends/{backend}/enable", print: printBackends},
	}},
	{use: "version", short: "Shows the version, the commit and its date of this program, which need not be those of a running one", run: showVersion},
	{use: "status", short: "Shows whether the gateway takes calls, and how its store is", run: showStatus},
	{
		use: "verify", short: "Rebuilds every balance from entries and transfers and checks that money, tasks and the records of files add up", run: verify,
		flags: []flag{
			{name: "backup", value: "", help: "Check this backup instead of the running gateway"},
			{name: "engine", value: "badger", help: "The storage engine to read the backup with"},
		},
	},
	{
		use: "doctor", short: "Looks for what is dangerous or broken in a configuration, the running one or --config's", run: examine,
		flags: []flag{
			{name: "config", value: "", help: "A configuration file instead of the running configuration"},
			{name: "adapter", value: "", help: "The adapter of that file (default: caddyfile for files named Caddyfile*)"},
		},
	},
	{
		use: "backup <file>", short: "Writes a backup of the running gateway's store to a new file, or to standard output if it is -", run: backup,
		long: `Writes a backup of the running gateway's store to a new file, or to standard
output if the file is -.

It holds users, money and tasks. The master key is not in it, nor are the files
of results: these lie beside the store, in its directory .media or the configured
place, for 7 days. Where they are not restored, their links answer 410.`,
	},
	{
		use: "restore <file> <directory>", short: "Reads a backup into a fresh store directory; the server that will use it must not run",
		run: restore, flags: []flag{{name: "engine", value: "badger", help: "The storage engine of the directory"}},
	},
	{
		use: "init [dir]", run: initialize,
		short: "Writes a Caddyfile for backends of your own and a file with its secrets into a directory; asks if no backend is named",
		flags: []flag{
			{name: "domain", value: "http://localhost:8080", help: "Address of the site, as ai.example.com"},
			{name: "data", value: "", help: "Directory of the store (default: store in the directory)"},
			{name: "anthropic", value: false, help: "Serve models of Anthropic"},
			{name: "openai", value: false, help: "Serve models of OpenAI"},
			{name: "anthropic-url", value: "", help: "Another address with Anthropic's interface, as https://ai.example.com (default: that of Anthropic)"},
			{name: "vllm", value: "", help: "Address of a vLLM server, or of another with OpenAI's interface, as 10.0.0.5:8000 or https://ai.example.com/v1"},
			{name: "vllm-models", value: []string(nil), help: "Its models"},
			{name: "ollama", value: "", help: "Address of an Ollama server, as localhost:11434"},
			{name: "ollama-models", value: []string(nil), help: "Its models"},
			{name: "tasks", value: "", help: "Address of a server of images and videos with /v1/videos, such as vLLM-Omni or SGLang"},
			{name: "tasks-models", value: []string(nil), help: "Its models, with video- or image- before the name that they have there"},
		},
	},
	{
		use: "demo", short: "Starts a whole gateway on this machine, with a backend to try and a key", run: runDemo,
		flags: []flag{
			{name: "listen", value: "127.0.0.1:0", help: "Address to serve at; port 0 takes a free one"},
			{name: "data", value: "", help: "Directory to keep everything in (default: a temporary one, removed at the end)"},
		},
	},
}

var (
	noLimits       = flag{name: "none", value: false, help: "Take all limits away", local: true}
	idempotencyKey = flag{name: "idempotency-key", value: "", help: "A word of your own: with the same one this is done once"}
	changeFlags    = []flag{reasonFlag("ledger and in the audit log"), idempotencyKey}
)

// reasonFlag is the flag of changes that an operator must give a reason for.
func reasonFlag(where string) flag {
	return flag{name: "reason", value: "", help: "Why; it stands in the " + where, parse: parseReason}
}

// limitFlags are the limits of a user or a key. The server checks their bounds.
func limitFlags(within string) []flag {
	return []flag{
		{name: "budget", value: "", help: "How much may be spent in each period of --reset, as 9.90; 0: no limit", to: within + "budget", parse: parseBudget},
		{name: "reset", value: "", help: "When the budget starts anew, in UTC: never, day, week or month (default: never)", to: within + "reset", parse: parseReset},
		{name: "rps", value: int64(0), help: "How many calls may begin in a second; 0: no limit", to: within + "requests_per_second"},
		{name: "streams", value: int64(0), help: "How many streaming calls may be open at once; 0: no limit", to: within + "streams"},
		{name: "tpm", value: int64(0), help: "How many tokens may be used in a minute; 0: no limit", to: within + "tokens_per_minute"},
	}
}

func pageFlags(after string) []flag {
	return []flag{
		{name: "limit", value: int64(query.DefaultPage), help: "How many, at most 10000", local: true},
		{name: "after", value: "", help: after, local: true},
	}
}
