package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"time"

	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/spf13/pflag"

	"github.com/caddy-modelgate/modelgate/internal/catalog"
	"github.com/caddy-modelgate/modelgate/internal/pricelist"
	"github.com/caddy-modelgate/modelgate/money"
)

// importPrices prints the prices of a public list as text of a Caddyfile. With --diff it prints
// only prices that differ from those of a Caddyfile, and returns an error if there are any. It sends no
// request.
func importPrices(c *call) error {
	options, err := priceOptions(c)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(c.args["file"])
	if err != nil {
		return errExit{exitNotFound, err}
	}
	list, err := pricelist.Read(text, options)
	if err != nil {
		return errExit{exitRefused, fmt.Errorf("%s: %w", c.args["file"], err)}
	}
	for _, s := range list.Skipped {
		fmt.Fprintf(c.ErrOrStderr(), "skipped %q: %s\n", s.Model, s.Reason)
	}
	for _, member := range list.Ignored {
		fmt.Fprintf(c.ErrOrStderr(), "ignored member %q\n", member)
	}
	if len(list.Prices) == 0 { // an imported empty file would make all models free
		return errExit{exitRefused, errors.New("the list has no price that can be imported")}
	}
	var differ error
	if config := c.flag("diff"); config != "" {
		current, err := pricesOf(config)
		if err != nil {
			return err
		}
		if list.KeepChanges(current); len(list.Prices) > 0 {
			differ = fmt.Errorf("%d prices differ from those of %s", len(list.Prices), config)
		}
	}
	if c.isSet("json") {
		err = c.printed(list, nil)
	} else if len(list.Prices) > 0 {
		_, err = fmt.Fprint(c.OutOrStdout(), list.Caddyfile()) // a printer would align the tabs
	}
	return cmp.Or(err, differ)
}

// priceOptions returns the options that the flags set.
func priceOptions(c *call) (pricelist.Options, error) {
	o := pricelist.Options{
		From: c.flag("from"), Provider: c.flag("provider"), Date: time.Now().UTC().Format(time.DateOnly),
		Models: c.Flags().Lookup("model").Value.(pflag.SliceValue).GetSlice(),
	}
	for _, glob := range o.Models {
		if _, err := path.Match(glob, ""); err != nil {
			return o, errUsage("--model %q is not a pattern such as claude-*", glob)
		}
	}
	var err error
	if o.Factor, err = money.Parse(c.flag("factor")); err != nil || o.Factor <= 0 {
		return o, errUsage("--factor %q is not a decimal number above zero, such as 1.2", c.flag("factor"))
	}
	return o, nil
}

// pricesOf returns the prices of a Caddyfile and of the files that it imports. Its errors have other
// exit codes than the error that prices differ.
func pricesOf(file string) (*catalog.Prices, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, errExit{exitNotFound, err}
	}
	var config struct {
		Apps struct {
			Modelgate struct{ Prices []catalog.Price } `json:"modelgate"`
		} `json:"apps"`
	}
	adapted, _, err := caddyconfig.GetAdapter("caddyfile").Adapt(text, map[string]any{"filename": file})
	if err == nil {
		err = json.Unmarshal(adapted, &config)
	}
	prices, invalid := catalog.NewPrices(config.Apps.Modelgate.Prices)
	if err = cmp.Or(err, invalid); err != nil {
		return nil, errExit{exitRefused, err}
	}
	return prices, nil
}
