package catalog

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/caddy-modelgate/modelgate/internal/fault"
)

// Families maps names of models to their families. It is immutable.
type Families struct {
	rows      Models[*FamilyRow]
	overrides map[string]*FamilyRow // rows without models, by family
	names     []string
}

// NewFamilies returns a set of rows, each of which must be valid. It returns an
// error if two patterns name the same models, or if two rows without models
// have the same family.
func NewFamilies(rows []FamilyRow) (*Families, error) {
	fs := &Families{overrides: make(map[string]*FamilyRow)}
	for _, row := range rows {
		if err := row.Validate(); err != nil {
			return nil, err
		}
		if len(row.Models) == 0 {
			if fs.overrides[row.Family] != nil {
				return nil, fmt.Errorf("family %s is changed twice; name the models that a change is for", row.Family)
			}
			fs.overrides[row.Family] = &row
		}
		for _, p := range row.Models {
			if err := fs.add(p, &row); err != nil {
				return nil, err
			}
		}
	}
	return fs, nil
}

// compareBool orders true before false.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

func (fs *Families) add(p Pattern, row *FamilyRow) error {
	if _, ok := fs.rows.Add(p, row); !ok {
		return fmt.Errorf("family %s: models %s are in a family already", row.Family, p)
	}
	if !p.Exact() {
		return nil
	}
	only, name := split(p)
	for _, kind := range []Kind{Video, Image} {
		if only == "" || only == kind {
			fs.names = append(fs.names, string(kind)+"-"+string(name))
		}
	}
	return nil
}

// Of returns the family of the model of a platform task. It returns INVALID_MODEL for a malformed
// name, and MODEL_NOT_FOUND if no pattern matches.
func (fs *Families) Of(kind Kind, model string) (Family, *fault.Fault) {
	if refused := CheckModel(kind, model); refused != nil {
		return Family{}, refused
	}
	family, ok := fs.Find(kind, model)
	if !ok {
		return Family{}, fault.At(fault.ModelNotFound, "model", "there is no model %q here", model)
	}
	return family, nil
}

// Find returns the family of a model of a kind, or false if no pattern matches. The name may have
// the prefix of the kind.
func (fs *Families) Find(kind Kind, model string) (Family, bool) {
	row, ok := fs.rows.Find(kind, model)
	if !ok {
		return Family{}, false
	}
	return fs.resolve(kind, bareName(kind, model), row), true
}

// resolve returns the rules of a model. They are those of the table, overridden by the row of the
// family, then by the row of the model, and then by the variants of each.
func (fs *Families) resolve(kind Kind, name string, row *FamilyRow) Family {
	base := tableRow(row.Family)
	override := cmp.Or(fs.overrides[row.Family], &FamilyRow{})
	f := Family{Name: base.name, Kind: kind, Rules: base.video}
	if kind == Image {
		f.Rules = base.image
	}
	for _, layer := range []*FamilyRow{override, row} {
		ofKind(kind, &layer.Video, &layer.Image).apply(&f.Rules)
	}
	for _, variants := range [][]VariantRow{base.variants, override.Variants, row.Variants} {
		if v := variantOf(name, variants); v != nil {
			ofKind(kind, &v.Video, &v.Image).apply(&f.Rules)
		}
	}
	return f
}

func ofKind(kind Kind, video, image *Override) *Override {
	if kind == Image {
		return image
	}
	return video
}

// variantOf returns the variant that takes precedence for a name: an exact name before a prefix, a
// longer prefix before a shorter one.
func variantOf(name string, variants []VariantRow) *VariantRow {
	var first *VariantRow
	for i := range variants {
		v := &variants[i]
		if hasPart(name, v.Models) && (first == nil || precedes(v.Models, first.Models)) {
			first = v
		}
	}
	return first
}

func precedes(a, b Pattern) bool {
	return cmp.Or(compareBool(a.Exact(), b.Exact()), cmp.Compare(len(b), len(a))) < 0
}

// hasPart reports whether p matches name, or the part of name after a dash.
func hasPart(name string, p Pattern) bool {
	for found := true; found; _, name, found = strings.Cut(name, "-") {
		if p.Match(name) {
			return true
		}
	}
	return false
}

// Names returns the exact names among the patterns in the order of the
// configuration. A name of both kinds is returned once for each.
func (fs *Families) Names() []string { return slices.Clone(fs.names) }

// Len returns the number of patterns.
func (fs *Families) Len() int { return fs.rows.Len() }

func tableRow(name string) *family {
	return first(families, func(f *family) bool { return f.name == name })
}

func familyNames() []string {
	names := make([]string, len(families))
	for i, f := range families {
		names[i] = f.name
	}
	return names
}
