package main

import (
	"go/ast"
	"go/types"
	"slices"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/inspect"
	"golang.org/x/tools/go/types/typeutil"
)

// module is the import path of the library. The checks know its functions by their paths, so that
// this module does not depend on the library.
const module = "github.com/d0720281/redlock"

var inspected = []*analysis.Analyzer{inspect.Analyzer}

// packageOf returns the path of a package below the library, "" for the root. ok is false for other
// packages and for those inside the library.
func packageOf(obj types.Object) (path string, ok bool) {
	if obj == nil || obj.Pkg() == nil {
		return "", false
	}
	rest, ok := strings.CutPrefix(obj.Pkg().Path(), module)
	if !ok || rest != "" && rest[0] != '/' || strings.HasPrefix(rest, "/internal/") {
		return "", false
	}
	return strings.TrimPrefix(rest, "/"), true
}

// calleeOf returns the function of the library that a call calls, or nil.
func calleeOf(info *types.Info, call *ast.CallExpr) (f *types.Func, pkg string) {
	f, _ = typeutil.Callee(info, call).(*types.Func)
	if f == nil {
		return nil, ""
	}
	f = f.Origin()
	pkg, ok := packageOf(f)
	if !ok {
		return nil, ""
	}
	return f, pkg
}

// isFunc reports whether a call calls a function of another package, by the path of the package.
func isFunc(info *types.Info, call *ast.CallExpr, pkg string, names ...string) bool {
	f, _ := typeutil.Callee(info, call).(*types.Func)
	return f != nil && f.Pkg() != nil && f.Pkg().Path() == pkg && slices.Contains(names, f.Name())
}

// isLease reports whether t is a pointer to a lease of the library: it has Context and Unlock.
func isLease(t types.Type) bool {
	ptr, ok := t.(*types.Pointer)
	if !ok {
		return false
	}
	named, ok := types.Unalias(ptr.Elem()).(*types.Named)
	if !ok {
		return false
	}
	if _, ok := packageOf(named.Obj()); !ok {
		return false
	}
	set := types.NewMethodSet(t)
	return set.Lookup(named.Obj().Pkg(), "Unlock") != nil && set.Lookup(named.Obj().Pkg(), "Context") != nil
}

func isContext(t types.Type) bool {
	named, ok := types.Unalias(t).(*types.Named)
	return ok && named.Obj().Pkg() != nil && named.Obj().Pkg().Path() == "context" && named.Obj().Name() == "Context"
}

// leaseMethod returns the name of the method if a call is one of a lease, and the lease.
func leaseMethod(info *types.Info, call *ast.CallExpr) (lease ast.Expr, name string) {
	sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
	if !ok || info.Selections[sel] == nil || !isLease(info.TypeOf(sel.X)) {
		return nil, ""
	}
	return sel.X, sel.Sel.Name
}

// underLease returns the function that a call of the library calls under a lease, as of Do, of an
// election and of a job, if it is written in the call.
func underLease(info *types.Info, call *ast.CallExpr) *ast.FuncLit {
	f, _ := calleeOf(info, call)
	if f == nil {
		return nil
	}
	for _, arg := range call.Args {
		lit, ok := ast.Unparen(arg).(*ast.FuncLit)
		if !ok {
			continue
		}
		params := info.TypeOf(lit).(*types.Signature).Params()
		if params.Len() == 2 && isContext(params.At(0).Type()) && isLease(params.At(1).Type()) {
			return lit
		}
	}
	return nil
}

// variable returns the local variable that an expression names, or nil.
func variable(info *types.Info, e ast.Expr) *types.Var {
	id, ok := ast.Unparen(e).(*ast.Ident)
	if !ok {
		return nil
	}
	v, ok := info.ObjectOf(id).(*types.Var)
	if !ok || v.IsField() || v.Pkg() == nil || v.Parent() == v.Pkg().Scope() {
		return nil
	}
	return v
}

// assigned calls f for each variable that a node gives a value, with the expression that it comes
// from: for v, err := call() both come from the call.
func assigned(info *types.Info, n ast.Node, f func(v *types.Var, from ast.Expr)) {
	each := func(i, n int, to ast.Expr, from []ast.Expr) {
		v := variable(info, to)
		switch {
		case v == nil:
		case len(from) == n:
			f(v, from[i])
		case len(from) == 1:
			f(v, from[0])
		default:
			f(v, nil)
		}
	}
	switch n := n.(type) {
	case *ast.AssignStmt:
		for i, to := range n.Lhs {
			each(i, len(n.Lhs), to, n.Rhs)
		}
	case *ast.ValueSpec:
		for i, to := range n.Names {
			each(i, len(n.Names), to, n.Values)
		}
	case *ast.RangeStmt:
		for _, to := range []ast.Expr{n.Key, n.Value} {
			if to != nil {
				each(0, 1, to, nil)
			}
		}
	}
}

// inTest reports whether a node is in a file of tests, but in no example. A test makes mistakes on
// purpose, and its masters end with it.
func inTest(pass *analysis.Pass, n ast.Node) bool {
	if !strings.HasSuffix(pass.Fset.Position(n.Pos()).Filename, "_test.go") {
		return false
	}
	fn := declarationOf(pass, n)
	return fn == nil || !strings.HasPrefix(fn.Name.Name, "Example")
}

// declarationOf returns the function at the top level that a node is in, or nil.
func declarationOf(pass *analysis.Pass, n ast.Node) *ast.FuncDecl {
	for _, file := range pass.Files {
		if n.Pos() < file.FileStart || file.FileEnd <= n.Pos() {
			continue
		}
		for _, decl := range file.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Pos() <= n.Pos() && n.Pos() < fn.End() {
				return fn
			}
		}
	}
	return nil
}
