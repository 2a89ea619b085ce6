package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/inspect"
	"golang.org/x/tools/go/ast/inspector"
)

var errEqual = &analysis.Analyzer{
	Name: "errequal",
	Doc: `report an error of the library that is compared by == or switch

Errors of the library wrap these, so that no comparison is true. errors.Is finds them.`,
	Requires: inspected,
	Run:      runErrEqual,
}

func runErrEqual(pass *analysis.Pass) (any, error) {
	info := pass.TypesInfo
	in := pass.ResultOf[inspect.Analyzer].(*inspector.Inspector)
	returned := make(map[*types.Var]bool) // by a call; what a test wants, or a method Is is given, is another error
	for n := range in.PreorderSeq((*ast.AssignStmt)(nil), (*ast.ValueSpec)(nil)) {
		assigned(info, n, func(v *types.Var, from ast.Expr) {
			_, call := from.(*ast.CallExpr)
			returned[v] = returned[v] || call
		})
	}
	report := func(got, want ast.Expr) {
		id, _ := ast.Unparen(want).(*ast.Ident)
		if sel, ok := ast.Unparen(want).(*ast.SelectorExpr); ok {
			id = sel.Sel
		}
		_, call := ast.Unparen(got).(*ast.CallExpr)
		if id == nil || !call && !returned[variable(info, got)] {
			return
		}
		v := info.Uses[id]
		if _, ours := packageOf(v); ours && v.Pkg() != pass.Pkg && v.Parent() == v.Pkg().Scope() && strings.HasPrefix(v.Name(), "Err") {
			pass.ReportRangef(want, "%s is wrapped by the errors of the library: take errors.Is", types.ExprString(want))
		}
	}
	for n := range in.PreorderSeq((*ast.BinaryExpr)(nil), (*ast.SwitchStmt)(nil)) {
		switch n := n.(type) {
		case *ast.BinaryExpr:
			if n.Op == token.EQL || n.Op == token.NEQ {
				report(n.X, n.Y)
				report(n.Y, n.X)
			}
		case *ast.SwitchStmt:
			for _, clause := range n.Body.List {
				for _, e := range clause.(*ast.CaseClause).List {
					if n.Tag != nil {
						report(n.Tag, e)
					}
				}
			}
		}
	}
	return nil, nil
}

var deferLoop = &analysis.Analyzer{
	Name: "deferloop",
	Doc: `report a deferred Unlock in a loop that goes on with work

The lease of each turn is held until the function returns, and not until the turn is over. Where the loop does nothing
else than take leases, that is meant.`,
	Requires: inspected,
	Run:      runDeferLoop,
}

func runDeferLoop(pass *analysis.Pass) (any, error) {
	in := pass.ResultOf[inspect.Analyzer].(*inspector.Inspector)
	in.WithStack([]ast.Node{(*ast.DeferStmt)(nil)}, func(n ast.Node, push bool, stack []ast.Node) bool {
		if !push || inTest(pass, n) {
			return true
		}
		unlocks := false
		ast.Inspect(n, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				_, name := leaseMethod(pass.TypesInfo, call)
				unlocks = unlocks || name == "Unlock"
			}
			return true
		})
		block, ok := stack[len(stack)-2].(*ast.BlockStmt)
		if !unlocks || !ok || block.List[len(block.List)-1] == n {
			return true
		}
		for i := len(stack) - 2; i >= 0; i-- {
			switch stack[i].(type) {
			case *ast.FuncLit, *ast.FuncDecl:
				return true
			case *ast.ForStmt, *ast.RangeStmt:
				pass.ReportRangef(n, "the lease is held until the function returns, and not until the turn of the loop is over")
				return true
			}
		}
		return true
	})
	return nil, nil
}

var fenceTx = &analysis.Analyzer{
	Name: "fencetx",
	Doc: `report statements that the fencing token does not guard

In the function of fence.Tx a statement of the database itself is not part of the transaction. fence.Claim has to be the
first statement of one: what is read before may be what the former holder has changed since.`,
	Requires: inspected,
	Run:      runFenceTx,
}

func runFenceTx(pass *analysis.Pass) (any, error) {
	info := pass.TypesInfo
	// statement returns the type and the variable of which a call runs a statement.
	statement := func(n ast.Node, prefixes ...string) (of string, v *types.Var) {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return "", nil
		}
		sel, ok := ast.Unparen(call.Fun).(*ast.SelectorExpr)
		for _, prefix := range prefixes {
			if ok && strings.HasPrefix(sel.Sel.Name, prefix) {
				return info.TypeOf(sel.X).String(), variable(info, sel.X)
			}
		}
		return "", nil
	}
	for n := range pass.ResultOf[inspect.Analyzer].(*inspector.Inspector).PreorderSeq((*ast.CallExpr)(nil)) {
		call := n.(*ast.CallExpr)
		f, pkg := calleeOf(info, call)
		if pkg != "fence" || inTest(pass, call) {
			continue
		}
		switch f.Name() {
		case "Tx", "TxAll":
			lit, _ := ast.Unparen(call.Args[len(call.Args)-1]).(*ast.FuncLit)
			if lit == nil {
				continue
			}
			ast.Inspect(lit.Body, func(n ast.Node) bool {
				if of, _ := statement(n, "Exec", "Query", "Prepare", "Begin"); of == "*database/sql.DB" || of == "*database/sql.Conn" {
					pass.ReportRangef(n, "the statement is not in the transaction that has presented the token: take its tx")
				}
				return true
			})
		case "Claim", "ClaimRow":
			tx, decl := variable(info, call.Args[1]), declarationOf(pass, call)
			if tx == nil || decl == nil {
				continue
			}
			ast.Inspect(decl.Body, func(n ast.Node) bool {
				if _, v := statement(n, "Query"); v == tx && n.Pos() < call.Pos() && v.Pos() < n.Pos() {
					pass.ReportRangef(call, "the transaction has read before: %s has to be its first statement", f.Name())
					return false
				}
				return true
			})
		}
	}
	return nil, nil
}
