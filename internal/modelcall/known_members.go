package modelcall

// knownMembers lists the members that a call with a price may have in addition to those with
// a rule. They come from the documentation and SDKs of the vendors and servers named below.
// None of them adds a cost to the cost of the tokens, and none causes more tokens than
// max_tokens and the context of the model allow.
//
// The list leaves out members that have a price, and these:
//   - those that choose an account, a server or a region;
//   - those that make the backend change or extend the prompt (chat_template, input_ids,
//     prompt_embeds);
//   - those that run code (custom_logit_processor) or change a priority (priority);
//   - objects that may contain any of these (sampling_params, parameters, options,
//     generation_config, vllm_xargs).
var knownMembers = []string{
	// Anthropic.
	"anthropic_version", "cache_control", "metadata", "output_config", "output_format", "stop_sequences", "system", "temperature", "thinking",
	"tool_choice", "top_k", "top_p",

	// OpenAI.
	"echo", "frequency_penalty", "function_call", "logit_bias", "logprobs", "parallel_tool_calls", "prediction", "presence_penalty",
	"prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "reasoning_effort", "response_format", "safety_identifier", "seed",
	"stop", "store", "stream_options", "suffix", "top_logprobs", "user", "verbosity",

	// vLLM.
	"add_generation_prompt", "add_special_tokens", "allowed_token_ids", "bad_words", "cache_salt", "chat_template_kwargs",
	"continue_final_message", "guided_choice", "guided_decoding_backend", "guided_grammar", "guided_json", "guided_regex",
	"guided_whitespace_pattern", "ignore_eos", "include_reasoning", "include_stop_str_in_output", "length_penalty", "logprob_token_ids",
	"min_p", "prompt_logprobs", "repetition_detection", "repetition_penalty", "return_token_ids",
	"return_tokens_as_token_ids", "skip_special_tokens", "spaces_between_special_tokens", "stop_token_ids", "stream_interval",
	"structural_tag", "structured_outputs", "truncate_prompt_tokens", "truncation_side",

	// SGLang.
	"ebnf", "json_schema", "no_stop_trim", "regex", "return_cached_tokens_details",
	"separate_reasoning", "stop_regex", "stream_reasoning", "use_audio_in_video",

	// llama.cpp, Ollama, TGI and servers with their samplers.
	"cache_prompt", "do_sample", "dry_allowed_length", "dry_base", "dry_multiplier", "dry_penalty_last_n", "dry_sequence_breakers",
	"dynatemp_exponent", "dynatemp_range", "early_stopping", "epsilon_cutoff", "eta_cutoff", "format", "grammar", "min_keep", "mirostat",
	"mirostat_eta", "mirostat_tau", "n_discard", "n_indent", "n_keep", "n_probs", "no_repeat_ngram_size", "penalize_nl",
	"post_sampling_probs", "reasoning_format", "repeat_last_n", "repeat_penalty", "return_progress", "return_tokens", "samplers",
	"smoothing_factor", "t_max_predict_ms", "temperature_last", "tfs_z", "think", "timings_per_token", "top_a", "top_n_sigma", "typical_p",
	"watermark", "xtc_probability", "xtc_threshold",

	// Cohere, DeepSeek, Fireworks, GLM, Gemini, Groq, MiniMax, Mistral, OpenRouter, Qwen, Together.
	"citation_options", "context_length_exceeded_behavior", "disable_tool_validation", "enable_thinking", "incremental_output",
	"preserve_thinking", "prompt_mode", "prompt_truncate_len", "random_seed", "reasoning_split", "result_format", "safe_prompt",
	"safety_mode", "safety_settings", "strict_tools", "tool_stream", "transforms", "usage", "user_id", "vl_high_resolution_images",
}

// knownToolMembers lists the same members of a tool, in either dialect.
var knownToolMembers = []string{
	"function", "custom", "name", "description", "parameters", "format", "input_schema", "input_examples", "strict",
	"cache_control", "defer_loading", "eager_input_streaming", "allowed_callers",
	"display_height_px", "display_width_px", "display_number", "enable_zoom", "max_characters",
	"configs", "default_config", "mcp_server_name", "output_schema",
	"allowed_domains", "blocked_domains", "user_location", "citations", "max_content_tokens", "response_inclusion", "url_sources", "use_cache",
	"caching",
}
