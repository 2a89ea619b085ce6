package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"regexp"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/inspect"
	"golang.org/x/tools/go/ast/inspector"
	"golang.org/x/tools/go/cfg"
	"golang.org/x/tools/go/types/typeutil"
)

var lostLease = &analysis.Analyzer{
	Name: "lostlease",
	Doc: `report a lease that a return leaves behind

The library renews a lease until it ends. A function that returns without Unlock or Detach, and without having
passed the lease on, keeps every other caller out while the process runs. Any use of the lease that may pass it on
counts. In main, in examples, and in functions that close a Locker, nothing is reported.`,
	Requires: inspected,
	Run:      runLostLease,
}

// observers are the methods of leases that neither end a lease nor pass it on.
var observers = map[string]bool{
	"Context": true, "Within": true, "Validity": true, "Err": true, "Fence": true, "Token": true, "Resource": true, "Owner": true,
	"Mode": true, "Extend": true, "ExtendFor": true, "Downgrade": true,
}

func runLostLease(pass *analysis.Pass) (any, error) {
	for n := range pass.ResultOf[inspect.Analyzer].(*inspector.Inspector).PreorderSeq((*ast.FuncDecl)(nil), (*ast.FuncLit)(nil)) {
		if strings.HasSuffix(pass.Fset.Position(n.Pos()).Filename, "_test.go") {
			continue
		}
		switch n := n.(type) {
		case *ast.FuncDecl:
			if n.Body != nil && (n.Name.Name != "main" || pass.Pkg.Name() != "main") {
				checkLeases(pass, n, n.Body)
			}
		case *ast.FuncLit:
			checkLeases(pass, n, n.Body)
		}
	}
	return nil, nil
}

// checkLeases checks the leases that one function takes, but not those of functions inside.
func checkLeases(pass *analysis.Pass, fn ast.Node, body *ast.BlockStmt) {
	if decl := declarationOf(pass, fn); decl != nil && closesLocker(pass.TypesInfo, decl.Body) {
		return
	}
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncLit:
			return false
		case *ast.ExprStmt:
			if call, ok := ast.Unparen(n.X).(*ast.CallExpr); ok && takesLease(pass.TypesInfo, call) {
				pass.ReportRangef(call, "the lease is dropped: nothing can unlock it or see that it ends")
			}
		case *ast.AssignStmt, *ast.ValueSpec:
			checkLease(pass, fn, body, n)
		}
		return true
	})
}

var endsProgram = regexp.MustCompile(`^([Pp]anic(f|ln|w)?|Fatal(f|ln|w)?|Exit|Goexit)$`)

// mayReturn reports whether a call may return, by the name of the function.
func mayReturn(info *types.Info, call *ast.CallExpr) bool {
	callee := typeutil.Callee(info, call)
	return callee == nil || !endsProgram.MatchString(callee.Name())
}

// takesLease reports whether a call of the library returns a lease of its own and an error.
func takesLease(info *types.Info, call *ast.CallExpr) bool {
	f, _ := calleeOf(info, call)
	if f == nil || !returnsError(f) {
		return false
	}
	results := f.Signature().Results()
	return results.Len() == 2 && isLease(results.At(0).Type())
}

func closesLocker(info *types.Info, body *ast.BlockStmt) (found bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			f, _ := calleeOf(info, call)
			found = found || f != nil && f.Name() == "Close"
		}
		return !found
	})
	return found
}

// search looks for a way from the call that took a lease to a return.
type search struct {
	info       *types.Info
	lease, err *types.Var
	named      bool // the lease is a result with a name, so a bare return passes it on
	ends       map[*types.Var]bool
	comm       map[ast.Node]bool // of select: evaluated before one of them is chosen
	start      *cfg.Block
	seen       map[state]bool
}

// state is where a search is, and whether the variable of the error still has that of the call.
type state struct {
	block *cfg.Block
	fresh bool
}

func checkLease(pass *analysis.Pass, fn ast.Node, body *ast.BlockStmt, def ast.Node) {
	s := &search{info: pass.TypesInfo, ends: make(map[*types.Var]bool), comm: make(map[ast.Node]bool), seen: make(map[state]bool)}
	var taken *ast.CallExpr
	var to []ast.Expr
	switch def := def.(type) {
	case *ast.AssignStmt:
		if len(def.Lhs) == 2 && len(def.Rhs) == 1 {
			taken, _ = ast.Unparen(def.Rhs[0]).(*ast.CallExpr)
			to = def.Lhs
		}
	case *ast.ValueSpec:
		if len(def.Names) == 2 && len(def.Values) == 1 {
			taken, _ = ast.Unparen(def.Values[0]).(*ast.CallExpr)
			to = []ast.Expr{def.Names[0], def.Names[1]}
		}
	}
	if taken == nil || !takesLease(s.info, taken) {
		return
	}
	if id, ok := to[0].(*ast.Ident); ok && id.Name == "_" {
		pass.ReportRangef(taken, "the lease is dropped: nothing can unlock it or see that it ends")
		return
	}
	s.lease, s.err = variable(s.info, to[0]), variable(s.info, to[1])
	if s.lease == nil || s.lease.Pos() < fn.Pos() || fn.End() <= s.lease.Pos() || s.err == nil {
		return // kept outside of the function, or its error is not looked at
	}
	if s.prepare(fn, body) {
		return
	}
	graph := cfg.New(body, func(call *ast.CallExpr) bool { return mayReturn(s.info, call) })
	for _, b := range graph.Blocks {
		for i, n := range b.Nodes {
			if n != def {
				continue
			}
			s.start = b
			if ret := s.nodes(b, b.Nodes[i+1:], true); ret != nil {
				line := pass.Fset.Position(ret.Pos()).Line
				pass.ReportRangef(taken, "line %d can be reached with the lease neither unlocked nor passed on: it is renewed for ever", line)
			}
			return
		}
	}
}

// prepare notes what the search has to know of the whole function. done is true if a function inside may end the lease, or pass it on.
func (s *search) prepare(fn ast.Node, body *ast.BlockStmt) (done bool) {
	var sig *ast.FuncType
	switch fn := fn.(type) {
	case *ast.FuncDecl:
		sig = fn.Type
	case *ast.FuncLit:
		sig = fn.Type
	}
	s.named = sig.Results != nil && sig.Results.Pos() <= s.lease.Pos() && s.lease.Pos() < sig.Results.End()
	ast.Inspect(body, func(n ast.Node) bool {
		assigned(s.info, n, func(v *types.Var, from ast.Expr) {
			if call, ok := from.(*ast.CallExpr); ok && isContext(v.Type()) && s.observed(call) {
				s.ends[v] = true
			}
		})
		switch n := n.(type) {
		case *ast.CommClause:
			if n.Comm != nil {
				s.comm[n.Comm] = true
			}
		case *ast.FuncLit:
			done = done || s.uses(n)
		case *ast.SwitchStmt:
			done = done || n.Tag != nil && mentions(s.info, n.Tag, s.err)
		case *ast.TypeSwitchStmt:
			done = done || mentions(s.info, n.Assign, s.err)
		}
		return true
	})
	return done
}

// nodes goes through the rest of a block, and returns the end of the function if it is reached with the lease.
func (s *search) nodes(b *cfg.Block, rest []ast.Node, fresh bool) ast.Node {
	for i, n := range rest {
		if s.comm[n] && len(b.Succs) > 1 {
			continue // the block of the clause decides
		}
		if _, ok := n.(*ast.ReturnStmt); ok && s.uses(n) {
			return nil
		}
		last := i == len(rest)-1 && len(b.Succs) == 2
		if e, ok := n.(ast.Expr); ok && last {
			if s.uses(n) {
				return nil
			}
			return s.branch(b, e, fresh)
		}
		if s.uses(n) || s.waitsForEnd(n) {
			return nil
		}
		again, derived := false, false
		assigned(s.info, n, func(v *types.Var, from ast.Expr) {
			again = again || v == s.err
			derived = derived || v != s.lease && fresh && from != nil && mentions(s.info, from, s.err)
		})
		if derived {
			return nil // what the error was is in another variable now: give up
		}
		fresh = fresh && !again
	}
	if ret := b.Return(); ret != nil {
		return ret
	}
	return s.follow(b.Succs, fresh)
}

func (s *search) follow(blocks []*cfg.Block, fresh bool) ast.Node {
	for _, b := range blocks {
		if b == s.start {
			if len(b.Nodes) > 0 {
				return b.Nodes[0] // a loop takes the next lease
			}
			continue
		}
		if s.seen[state{b, fresh}] {
			continue
		}
		s.seen[state{b, fresh}] = true
		if clause, ok := b.Stmt.(*ast.CommClause); ok && b.Kind == cfg.KindSelectCaseBody && clause.Comm != nil && (s.waitsForEnd(clause.Comm) || s.uses(clause.Comm)) {
			continue
		}
		if ret := s.nodes(b, b.Nodes, fresh); ret != nil {
			return ret
		}
	}
	return nil
}

// branch follows the ways of a condition on which the lease may be held.
func (s *search) branch(b *cfg.Block, cond ast.Expr, fresh bool) ast.Node {
	yes, no := s.heldIf(cond, fresh)
	if yes {
		if ret := s.follow(b.Succs[:1], fresh); ret != nil {
			return ret
		}
	}
	if no {
		return s.follow(b.Succs[1:], fresh)
	}
	return nil
}

// heldIf returns whether the lease may be held if a condition is true, and if it is false. Both are false for a condition
// on the error that is not understood.
func (s *search) heldIf(cond ast.Expr, fresh bool) (yes, no bool) {
	switch c := ast.Unparen(cond).(type) {
	case *ast.UnaryExpr:
		if c.Op == token.NOT {
			no, yes = s.heldIf(c.X, fresh)
			return yes, no
		}
	case *ast.BinaryExpr:
		switch c.Op {
		case token.LAND, token.LOR:
			xYes, xNo := s.heldIf(c.X, fresh)
			yYes, yNo := s.heldIf(c.Y, fresh)
			if c.Op == token.LAND {
				return xYes && yYes, xNo || xYes && yNo
			}
			return xYes || xNo && yYes, xNo && yNo
		case token.EQL, token.NEQ:
			x, y := c.X, c.Y
			if s.info.Types[x].IsNil() {
				x, y = y, x
			}
			if held, known := s.heldIfNil(x, fresh); known && s.info.Types[y].IsNil() {
				return held == (c.Op == token.EQL), held == (c.Op == token.NEQ)
			}
		}
	case *ast.CallExpr:
		if !isFunc(s.info, c, "errors", "Is", "As", "AsType") {
			break
		}
		of, called := ast.Unparen(c.Args[0]).(*ast.CallExpr)
		if fresh && mentions(s.info, c.Args[0], s.err) || called && s.observed(of) { // an error of Extend or Err: that the lease is over
			return false, true
		}
	}
	understood := !fresh || !mentions(s.info, cond, s.err)
	return understood, understood
}

// heldIfNil returns whether the lease may be held only if an expression is nil, or only if it is not. known is false if neither.
func (s *search) heldIfNil(e ast.Expr, fresh bool) (held, known bool) {
	if call, ok := ast.Unparen(e).(*ast.CallExpr); ok {
		known = s.isMethod(call, "Err") || s.isErrOfContext(call)
		return known, known
	}
	v := variable(s.info, e)
	isErr := v == s.err && fresh
	return isErr, isErr || v == s.lease
}

// uses reports whether a node has a use of the lease that may end it or pass it on.
func (s *search) uses(n ast.Node) (found bool) {
	if ret, ok := n.(*ast.ReturnStmt); ok && ret.Results == nil && s.named {
		return true
	}
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			if s.observed(n) {
				for _, arg := range n.Args {
					found = found || s.uses(arg)
				}
				return false
			}
		case *ast.BinaryExpr:
			if s.info.Types[n.X].IsNil() || s.info.Types[n.Y].IsNil() {
				return variable(s.info, n.X) != s.lease && variable(s.info, n.Y) != s.lease
			}
		case *ast.Ident:
			found = found || s.info.Uses[n] == s.lease
		}
		return !found
	})
	return found
}

// observed reports whether a call is a method of the lease that neither ends nor passes it on.
func (s *search) observed(call *ast.CallExpr) bool {
	lease, name := leaseMethod(s.info, call)
	return lease != nil && variable(s.info, lease) == s.lease && observers[name]
}

func (s *search) isMethod(call *ast.CallExpr, name string) bool {
	lease, got := leaseMethod(s.info, call)
	return lease != nil && variable(s.info, lease) == s.lease && got == name
}

// isErrOfContext reports whether a call is Err of the lease's context.
func (s *search) isErrOfContext(call *ast.CallExpr) bool {
	sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
	return ok && sel.Sel.Name == "Err" && s.isEnd(sel.X)
}

// isEnd reports whether an expression is a context that ends with the lease.
func (s *search) isEnd(e ast.Expr) bool {
	if call, ok := ast.Unparen(e).(*ast.CallExpr); ok {
		return s.isMethod(call, "Context")
	}
	return s.ends[variable(s.info, e)]
}

// waitsForEnd reports whether a node receives from Done of a context that ends with the lease.
func (s *search) waitsForEnd(n ast.Node) (found bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		if receive, ok := n.(*ast.UnaryExpr); ok && receive.Op == token.ARROW {
			if done, ok := ast.Unparen(receive.X).(*ast.CallExpr); ok {
				sel, ok := ast.Unparen(done.Fun).(*ast.SelectorExpr)
				found = found || ok && sel.Sel.Name == "Done" && s.isEnd(sel.X)
			}
		}
		return !found
	})
	return found
}

// mentions reports whether a node names a variable.
func mentions(info *types.Info, n ast.Node, v *types.Var) (found bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		found = found || ok && info.Uses[id] == v
		return !found
	})
	return found
}
