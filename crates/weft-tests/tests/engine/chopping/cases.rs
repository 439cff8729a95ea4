//! Procedures whose pieces are known in advance.

use weft_procedures::chopping::{
    Chopping, NotAdmitted, NotDeferred, Options, Outlines, PieceKind, admit, chop,
};

fn outlines(text: &str) -> Outlines {
    text.parse().unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Returns the chopping, and the pieces of all procedures as labels.
fn pieces(text: &str, options: Options) -> (Chopping, Vec<Vec<String>>) {
    let chopping = chop(&outlines(text), options).expect("the procedures can be chopped");
    let each = chopping.each().map(|(outline, chopped)| {
        let piece = |piece: &weft_procedures::chopping::Piece| {
            let labels = piece.steps.iter().map(|&step| outline.steps[step].label.as_str());
            format!("{}: {}", piece.kind, labels.collect::<Vec<_>>().join(" "))
        };
        chopped.pieces.iter().map(piece).collect()
    });
    let each = each.collect();
    (chopping, each)
}

/// Figure 2: the first two procedures access `a` before `b`, and the third accesses only `b`.
#[test]
fn steps_on_a_cycle_are_merged() {
    let text = "
        procedure one
            write a ()
            write b ()
        end
        procedure two
            write a ()
            write b ()
        end
        procedure three
            write b ()
            write c ()
        end";
    let text = &text.replace(" ()", " (v)");
    let (chopping, pieces) = pieces(text, Options::ALL);
    assert_eq!(pieces[0], ["conflicting: a b"]);
    assert_eq!(pieces[1], ["conflicting: a b"]);
    // Two instances of the third procedure conflict on both rows.
    assert_eq!(pieces[2], ["conflicting: b c"]);
    let merge = &chopping.procedures[0].merges[0];
    let why = chopping.explain(0, merge);
    assert!(
        why.starts_with("cycle: one.a (1) -C[v]- ") && why.ends_with("one.b (1) -S- back"),
        "{why}"
    );
}

#[test]
fn columns_and_operations_set_steps_apart() {
    let text = "
        procedure pay
            update t (reads name; add sum)
            update u (n)
        end
        procedure look
            t: update t (reads name; writes seen)
            u: update u (n)
        end";
    let (_, by_columns) = pieces(text, Options { snapshots: false, ..Options::ALL });
    assert_eq!(by_columns[0], ["commutative: t", "conflicting: u"]);
    let (_, by_tables) = pieces(text, Options { columns: false, ..Options::ALL });
    assert_eq!(by_tables[0], ["conflicting: t u"]);
    let (_, without) = pieces(text, Options { commutativity: false, ..Options::ALL });
    assert_eq!(without[0], ["conflicting: t u"]);
}

#[test]
fn steps_between_merged_steps_move_out() {
    let text = "
        procedure one
            first: update a (v)
            free: add b (v)
            second: update c (v)
        end";
    let (chopping, in_order) = pieces(text, Options { reordering: false, ..Options::ALL });
    assert_eq!(in_order[0], ["conflicting: first free second"]);
    assert!(chopping.procedures[0].is_as_written);
    let (chopping, reordered) = pieces(text, Options::ALL);
    assert_eq!(reordered[0], ["conflicting: first second", "commutative: free"]);
    assert!(!chopping.procedures[0].is_as_written);
    // The step between stays if it depends on the first step, and the last step depends on it.
    let bound = text.replace("add b (v)", "add b (v); key from first");
    let bound = bound.replace("update c (v)", "update c (v); if free");
    assert_eq!(pieces(&bound, Options::ALL).1[0], ["conflicting: first free second"]);
    // If the step between and the first step are in a loop, the loop is divided.
    let looped = text.replace("first:", "loop\n first:").replace("c (v)", "c (v)\n end");
    assert_eq!(
        pieces(&looped, Options::ALL).1[0],
        ["conflicting: first second", "commutative: free"]
    );
}

#[test]
fn rollbacks_are_in_the_first_piece() {
    let text = "
        procedure one
            add a (v)
            read b (v)
            read c (v); key from b; may roll back
            add d (v)
        end";
    let (chopping, as_written) = pieces(text, Options { reordering: false, ..Options::ALL });
    assert_eq!(as_written[0], ["commutative: a b c", "commutative: d"]);
    let why: Vec<String> =
        chopping.procedures[0].merges.iter().map(|merge| chopping.explain(0, merge)).collect();
    assert!(why.iter().all(|why| why.contains("may roll back at c")), "{why:?}");
    let (chopping, reordered) = pieces(text, Options::ALL);
    assert_eq!(reordered[0], ["static: b c", "commutative: a", "commutative: d"]);
    assert!(!chopping.procedures[0].is_as_written);
}

/// The scheme of Figure 3, and its condition.
#[test]
fn operations_are_deferred_if_they_meet_their_readers_nowhere_else() {
    let text = "
        procedure publish
            update x (v)
            add sum (v); values from x
        end
        procedure subscribe
            update sum (v)
            update y (v)
        end";
    let (_, apart) = pieces(text, Options::ALL);
    assert_eq!(apart[0], ["conflicting: x", "deferred: sum"]);
    assert_eq!(apart[1], ["conflicting: sum y"]);
    let (_, without) = pieces(text, Options { deferral: false, ..Options::ALL });
    assert_eq!(without[0], ["conflicting: x sum"]);

    // A third procedure connects both.
    let third = format!("{text}\nprocedure third\n write x (v)\n write y (v)\nend");
    let (chopping, connected) = pieces(&third, Options::ALL);
    assert_eq!(connected[0], ["conflicting: x sum"]);
    let [(_, NotDeferred::Connected(way))] = &chopping.not_deferred[..] else {
        panic!("{chopping:?}")
    };
    assert_eq!(way.len(), 2, "x, and y: {way:?}");

    // A result that later steps use cannot be deferred.
    let used =
        text.replace("add sum (v); values from x", "add sum (v)\n z: add z (v); values from sum");
    let looped =
        text.replace("add sum (v); values from x", "add sum (v)\n loop over sum\n add z (v)\n end");
    for text in [used, looped] {
        let (_, pieces) = pieces(&text, Options::ALL);
        assert!(pieces[0].iter().all(|piece| !piece.starts_with("deferred")), "{pieces:?}");
    }
}

#[test]
fn deferral_is_never_mutual() {
    let text = "
        procedure one
            add x (v)
            read y (v)
        end
        procedure two
            add y (v)
            read x (v)
        end";
    let (chopping, pieces) = pieces(text, Options::ALL);
    let deferred = pieces.iter().flatten().filter(|piece| piece.starts_with("deferred")).count();
    assert!(deferred <= 1, "{pieces:?}");
    assert!(chopping.not_deferred.iter().any(|(_, why)| *why == NotDeferred::Mutual), "{pieces:?}");
}

#[test]
fn subscribers_read_deferred_values_in_one_piece() {
    let text = "
        procedure publish
            add x (v)
        end
        procedure subscribe
            one: read x (v)
            other: read x (v); key from one
            z: write z (v)
        end";
    let (_, pieces) = pieces(text, Options::ALL);
    assert_eq!(pieces[0], ["deferred: x"]);
    assert_eq!(pieces[1], ["conflicting: one other z"]);
}

const TOKENS: &str = "
    token ticket for order
    procedure enter
        update counter (v)
        insert order; key from counter
        insert ticket; key from counter
    end
    procedure serve
        scan ticket
        done: delete ticket; key from ticket
        update order (v); key from ticket
    end";

#[test]
fn tokens_guard_rows_if_all_procedures_use_them() {
    let (_, by_token) = pieces(TOKENS, Options::ALL);
    assert_eq!(by_token[0], ["conflicting: counter order ticket"]);
    assert_eq!(by_token[1], ["conflicting: ticket done", "exclusive: order"]);
    // Here the procedure inserts the token before the row.
    let late = TOKENS.replace("insert order;", "x: insert other;");
    let late = late.replace(
        "insert ticket; key from counter",
        "insert ticket; key from counter\n insert order; key from counter",
    );
    assert_eq!(pieces(&late, Options::ALL).1[0][0], "conflicting: counter ticket order");
    // Here a third procedure updates rows without a token.
    let other = format!("{TOKENS}\nprocedure other\n update order (v)\nend");
    let (chopping, pieces) = pieces(&other, Options::ALL);
    assert_eq!(pieces[1], ["conflicting: ticket done order"]);
    let (table, why) = &chopping.without_token[0];
    assert_eq!(table, "order");
    assert!(why.contains("other neither inserts nor deletes rows of ticket"), "{why}");
}

#[test]
fn unchanged_tables_are_static() {
    let text = "
        procedure one
            read item
            update t (v)
        end
        procedure two
            read item
            update t (v)
        end";
    let (chopping, by_all) = pieces(text, Options::ALL);
    assert_eq!(by_all[0], ["static: item", "conflicting: t"]);
    assert_eq!(chopping.static_tables, ["item"]);
    let (_, without) = pieces(text, Options { static_tables: false, ..Options::ALL });
    assert_eq!(without[0], ["reading: item", "conflicting: t"]);
}

/// An error of admission names the procedure, the steps and the cycle.
#[test]
fn procedures_that_close_a_cycle_are_not_admitted() {
    let running = outlines(
        "procedure one
            write a (v); may roll back
            add b (v)
            read item
        end",
    );
    let added = |text: &str| outlines(text).procedures.remove(0);
    let refused = |text: &str| match admit(&running, &added(text), Options::ALL) {
        Err(NotAdmitted::Changes(change)) => change.to_string(),
        other => panic!("{other:?}"),
    };
    let cycle = refused("procedure two\n read a (v)\n update b (v)\nend");
    for part in
        ["'one' runs in other pieces: a and b: cycle: one.a (1) -C[v]- ", "two.b", "one.b (1)"]
    {
        assert!(cycle.contains(part), "{part}: {cycle}");
    }
    let changed = refused("procedure two\n write item (v)\nend");
    assert!(changed.contains("item") && changed.contains("one"), "{changed}");
    let chopping =
        admit(&running, &added("procedure two\n write a (v)\n add b (v)\nend"), Options::ALL);
    let kinds = |chopping: Chopping| -> Vec<PieceKind> {
        chopping.procedures[1].pieces.iter().map(|piece| piece.kind).collect()
    };
    assert_eq!(
        kinds(chopping.expect("admitted")),
        [PieceKind::Conflicting, PieceKind::Commutative]
    );
    // The new procedure would end a deferral, or the use of a token.
    let tickets = outlines(TOKENS);
    let other = added("procedure other\n update order (v)\nend");
    let error = admit(&tickets, &other, Options::ALL).expect_err("no token").to_string();
    assert!(
        error.contains("rows of order would no longer be guarded by tokens, because other"),
        "{error}"
    );
    let points =
        outlines("procedure p\n update x (v)\n add y (v)\nend\nprocedure s\n update y (v)\nend");
    let other = added("procedure o\n write x (v)\n write y (v)\nend");
    let error = admit(&points, &other, Options::ALL).expect_err("connects both").to_string();
    assert!(error.contains("y could no longer be deferred") && error.contains("o.x"), "{error}");
    let twice = admit(&running, &added("procedure one\n read a\nend"), Options::ALL);
    assert!(matches!(twice, Err(NotAdmitted::Outline(_))), "{twice:?}");
}

#[test]
fn text_errors_name_their_place() {
    for (text, line, column, words) in [
        ("procedur x", 1, 1, "'procedur' stands where 'procedure' or 'token'"),
        ("procedure p\n reed t\nend", 2, 2, "'reed' stands where a step (read, scan,"),
        ("procedure p\n  read t (a b)\nend", 2, 13, "'b' stands where ')'"),
        ("procedure p\n read t; key on x\nend", 2, 14, "'on' stands where 'from'"),
        ("procedure p\n read t; key from x\nend", 2, 19, "no step of 'p' is called 'x'"),
        ("procedure p\n a: read t; key from b\n b: read t\nend", 2, 2, "'b', which runs later"),
        ("procedure p\n read t\n read t\nend", 3, 2, "called 't': give one of them another label"),
        ("procedure p\n insert t (a)\nend", 2, 11, "whole rows"),
        ("procedure p\n add t\nend", 2, 7, "the line ends where '('"),
        ("procedure p\n read t", 2, 1, "'end' is missing, of 'procedure p'"),
        ("procedure p\n loop\n end\nend", 3, 2, "no step in this loop"),
        ("procedure p\n read t\nprocedure q\nend", 3, 1, "'end' is missing before this"),
        ("procedure p\nend\nprocedure p\nend", 3, 1, "two procedures are called 'p'"),
        ("procedure p\n read t § x\nend", 2, 9, "'§' has no meaning here"),
        ("token a for b\ntoken c for b", 2, 1, "tokens of more than one table"),
        ("procedure p\n read t; may roll\nend", 2, 18, "the line ends where 'back'"),
    ] {
        let error = text.parse::<Outlines>().expect_err(text);
        assert_eq!((error.line, error.column), (line, column), "{text}: {error}");
        assert!(error.what.contains(words), "{text}: {error}");
    }
}

#[test]
fn text_with_all_of_the_grammar_round_trips() {
    let text = "token ticket for order, line

procedure all
    read a; may roll back
    loop over a
        scan b by by_name (x, y); key from a
        loop
            inner: update c (reads *; writes x; add y, z; max w); values from b, last; if a
            last: upsert d
        end
    end
    write e (x)
    f: write e
    top_k_insert g (best); key from last
    delete h
    insert i
    update j
    read k ()
end
";
    assert_eq!(outlines(text).to_string(), text);
    // The parser accepts comments, extra space, and equivalent forms.
    let other = "procedure p # what\n\n\tupdate t (reads a ; writes a)   # is done\nend";
    assert_eq!(outlines(other), outlines("procedure p\nupdate t (a)\nend"));
}
