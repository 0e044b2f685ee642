# Series of results over runs, one panel each. Blocks 2i-2 and 2i-1 of the data: run and value; first run,
# last run and median of a segment.
first_top = 86.0
panel_height = (height - first_top - 16.0) / panels
set multiplot
set key off
set lmargin at screen px(90)
set rmargin at screen px(width - 24)
set ytics autofreq
set label 1 'Results over runs'.page_note at screen px(24), screen py(22) noenhanced font title_font \
    textcolor rgb ink
set label 2 'a point is a run; the line is the median between two changes of level' \
    at screen px(24), screen py(44) noenhanced font small_font textcolor rgb soft
do for [i = 1:panels] {
    top = first_top + (i - 1) * panel_height
    set tmargin at screen py(top)
    set bmargin at screen py(top + panel_height - 62)
    set xrange [0.5:runs[i] + 0.5]
    set yrange [low[i]:high[i]]
    set ytics step[i]
    set format y '%.'.digits[i].'g'
    set xtics () noenhanced
    set for [k = first_tick[i]:last_tick[i]] xtics add (tick_date[k]."\n".tick_name[k] tick_at[k])
    set label 9 (i == panels ? 'run, in order of time: its date, and its label or commit' : '') \
        at graph 0.5, screen py(height - 14) center noenhanced font small_font textcolor rgb soft
    set label 10 title[i] at screen px(90), screen py(top - 12) noenhanced font panel_font textcolor rgb ink
    set label 11 note[i] at graph 1, screen py(top - 12) right noenhanced font small_font textcolor rgb soft
    plot data index 2*i-1 using 1:3:($2-$1):(0) with vectors nohead linecolor rgb vermillion linewidth 2.4, \
         data index 2*i-2 using 1:2 with points pointtype 7 pointsize 0.6 linecolor rgb blue
    unset label 1; unset label 2
}
unset multiplot
