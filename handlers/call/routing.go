package call

import (
	"github.com/caddy-modelgate/modelgate/internal/fault"
	"github.com/caddy-modelgate/modelgate/internal/modelcall"
)

// nameModel writes the default model of the route into a body that has none.
func (c *call) nameModel() *fault.Fault {
	edit, ok := c.request.NameModel()
	if !ok {
		return nil
	}
	c.body.edit(edit)
	return c.reparse()
}

// resolveAliases replaces the aliases in the body by the models that they stand for. Only the bytes
// of these names change. From then on the call is a call of the model.
func (c *call) resolveAliases() *fault.Fault {
	app := c.block.app
	if len(app.Aliases) == 0 {
		return nil
	}
	return c.rename(app.Resolve)
}

// rename replaces names of models in the body, which no backend has received, and parses it again.
func (c *call) rename(target func(model string) string) *fault.Fault {
	edits := c.edits(target)
	if len(edits) == 0 {
		return nil
	}
	asked := c.request.Model
	for _, edit := range edits {
		c.body.edit(edit)
	}
	if f := c.reparse(); f != nil {
		return f
	}
	if c.asked == "" && c.request.Model != asked {
		c.asked = asked
	}
	return nil
}

// reparse parses the body again after a change.
func (c *call) reparse() *fault.Fault {
	c.request = modelcall.Request{}
	return c.parse()
}

// edits returns the edits of the body that replace names of models. A form names one model.
func (c *call) edits(target func(model string) string) []modelcall.Edit {
	if c.formType == "" {
		return c.request.Rename(c.body.bytes(), target)
	}
	model := target(c.request.Model)
	if model == c.request.Model {
		return nil
	}
	return []modelcall.Edit{c.modelEdit(model)}
}

// modelEdit returns the edit of the body that replaces the model of the call.
func (c *call) modelEdit(model string) modelcall.Edit {
	if c.formType == "" {
		return c.request.RenameModel(model)
	}
	return modelcall.Edit{From: c.modelField[0], To: c.modelField[1], Text: model}
}
